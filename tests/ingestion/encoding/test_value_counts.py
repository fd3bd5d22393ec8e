"""Values are counted by column: given, unknown, unreadable, and numbers in place of texts."""

import re

import polars as pl
import pytest

from shunter.errors import UnusableValuesError
from shunter.ingestion.encoding.buckets import BucketIds
from shunter.ingestion.encoding.columns import text_keys
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder, NumericField
from shunter.ingestion.encoding.value_counts import MOST_LISTED, ValueCounts, ValueFlag, listed
from shunter.ingestion.encoding.vocabulary import HashedIds, VocabularyIds
from shunter.serving.few_values import ValueEncoder

KNOWN = VocabularyIds(text_keys(pl.Series(["3.1", "3.10", "a"]), "written"))
ENCODER = Encoder(
    (NumericField("age", 0.0, 1.0),),
    (
        CategoricalField("version", KNOWN, key_kind="written"),
        CategoricalField("hashed", HashedIds(3), key_kind="value"),
        CategoricalField("bucket", BucketIds([1.0]), key_kind="number", column="age"),
        CategoricalField("bag", KNOWN, multi_valued=True, separator="|", key_kind="written"),
    ),
)


def counted(**columns: pl.Series) -> ValueCounts:
    rows = len(next(iter(columns.values())))
    missing = {name: pl.Series([None] * rows, dtype=pl.String) for name in ENCODER.columns}
    return ENCODER.count(ENCODER.encode_table({**missing, **columns}, rows))


def test_values_are_told_apart() -> None:
    found = counted(
        age=pl.Series(["1", "x", None, "-1e39"]),
        version=pl.Series(["3.1", "3.100", "", None]),
        hashed=pl.Series(["new", None, "z", "z"]),
        bag=pl.Series(["a|b", None, "|c", "a"]),
    )
    assert found.columns == ("age", "version", "hashed", "age", "bag")
    assert found.counts.tolist() == [[3, 2, 3, 3, 4], [0, 1, 0, 0, 2], [2, 0, 0, 2, 0], [0, 0, 0, 0, 0]]
    assert found.by_kind() == {"unknown": {"version": 0.5, "bag": 0.5}, "unreadable": {"age": 2 / 3}}


@pytest.mark.parametrize("number", [3.1, 3])
def test_a_number_in_place_of_a_text_is_reported(number: float) -> None:
    assert counted(version=pl.Series([number, None])).shares(ValueFlag.NUMBER_FOR_TEXT) == {"version": 1.0}
    assert counted(bag=pl.Series([[number], None])).shares(ValueFlag.NUMBER_FOR_TEXT) == {"bag": 1.0}
    assert counted(version=pl.Series([str(number)]), bag=pl.Series(["1"])).shares(ValueFlag.NUMBER_FOR_TEXT) == {}


def test_counts_of_blocks_add_up_and_a_limit_is_of_all() -> None:
    blocks = [counted(age=pl.Series(["1", "2"])), counted(age=pl.Series(["x", None]))]
    total = sum(blocks, ENCODER.count())
    assert total.shares(ValueFlag.UNREADABLE) == {"age": 1 / 3}
    total.check(1 / 3)
    total.check(None)
    with pytest.raises(UnusableValuesError) as refused:
        total.check(0.3)
    assert refused.value.shares == {"age": 1 / 3}


def test_parts_of_rows_keep_their_flags() -> None:
    age = pl.Series(["1", "x", "y"])
    columns = {"age": age, "version": age, "hashed": age, "bag": age}
    encoded = ENCODER.encode_table(columns, 3)
    assert ENCODER.count(encoded.part(1, 2)).numbers(ValueFlag.UNREADABLE) == {"age": 1}
    values = {name: ["a"] for name in columns} | {"age": [float("inf")]}
    few = ValueEncoder(ENCODER).encode(values, 1)
    assert few is not None
    assert ENCODER.count(few).numbers(ValueFlag.UNREADABLE) == {"age": 1}


def test_a_notice_lists_the_largest_shares() -> None:
    shares = {f"column {number}": 1 / (number + 1) for number in range(MOST_LISTED + 3)}
    assert re.findall(r"[\d.]+ %", listed({"a": 1.0, "b": 0.00125})) == ["100 %", "0.125 %"]
    assert [name in listed(shares) for name in shares] == [True] * MOST_LISTED + [False] * 3
