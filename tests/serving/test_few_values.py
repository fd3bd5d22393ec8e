"""Rows as Python's values: the ids and numbers are those of whole columns, bit by bit, the first time and later."""

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.ingestion.encoding.buckets import BucketIds
from shunter.ingestion.encoding.columns import text_keys
from shunter.ingestion.encoding.encoder import CategoricalField, Encoder, NumericField
from shunter.ingestion.encoding.vocabulary import HashedIds, VocabularyIds
from shunter.serving.few_values import LONGEST_REMEMBERED, ValueEncoder

TEXTS = [
    "5",
    "5.0",
    " 5 ",
    "war",
    "",
    "-3.00",
    "war|love",
    "|",
    "love|war|5.0",
    "\u2003x",
    "x\x1f",
    "ÄÖ",
    "1f",
    "x" * 300,
]
KNOWN = VocabularyIds(text_keys(pl.Series(["5", "war", "x", "-3"])))
ENCODER = Encoder(
    (NumericField("price", 1.5, 0.7), NumericField("age", 0.0, 2.0)),
    (
        CategoricalField("user", KNOWN),
        CategoricalField("item", HashedIds(1_000)),
        CategoricalField("version", KNOWN, key_kind="written"),
        CategoricalField("code", HashedIds(50), key_kind="hexadecimal"),
        CategoricalField("age_bucket", BucketIds([1.0, 10.0]), key_kind="number", column="age"),
        CategoricalField("genres", HashedIds(40), multi_valued=True, separator="|"),
        CategoricalField("seen", KNOWN, multi_valued=True, separator="|", length=2, table="user", is_built=True),
    ),
)
NUMBERS = st.one_of(st.none(), st.integers(-(2**70), 2**70), st.floats(width=64))
TEXT = st.one_of(st.none(), st.sampled_from(TEXTS), st.text(st.characters(codec="utf-8"), max_size=4))
WHOLE = st.one_of(st.none(), st.integers(-(2**65), 2**65))
ROWS = st.integers(0, 5)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, list[Any]], int]:
    rows = draw(ROWS)
    column = {"price": NUMBERS, "age": NUMBERS, "user": TEXT, "code": TEXT, "genres": TEXT}
    column |= {name: draw(st.sampled_from([TEXT, WHOLE])) for name in ("item", "version")}
    if draw(st.booleans()):
        column["seen"] = TEXT
    return {name: draw(st.lists(values, min_size=rows, max_size=rows)) for name, values in column.items()}, rows


def as_columns(table: dict[str, list[Any]]) -> dict[str, pl.Series]:
    from shunter.serving.table import Table

    found = Table(0, table)
    return {name: found.series(name) for name in table}


@given(st.lists(tables(), min_size=1, max_size=3))
def test_ids_and_numbers_are_those_of_whole_columns(given_tables: list[tuple[dict[str, list[Any]], int]]) -> None:
    values = ValueEncoder(ENCODER)
    for table, rows in given_tables * 2:  # the second time all short values are remembered
        found = values.encode(table, rows)
        if found is None:  # whole numbers that no column of them can hold
            whole = [*table["item"], *table["version"]]
            assert any(type(one) is int and abs(one) >= 2**63 for one in whole)
            continue
        expected = ENCODER.encode_table(as_columns(table), rows)
        assert found.dense.tobytes() == expected.dense.tobytes()
        assert np.array_equal(found.categorical, expected.categorical)
        assert ENCODER.count(found).counts.tolist() == ENCODER.count(expected).counts.tolist()
        assert len(found.bags) == len(expected.bags) == 2
        for bag, of_columns in zip(found.bags, expected.bags, strict=True):
            assert bag.values.dtype == np.int32
            assert np.array_equal(bag.values, of_columns.values)
            assert np.array_equal(bag.offsets, of_columns.offsets)
            assert bag.weights is None


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("user", [1.5, 2.0]),
        ("user", [True, False]),
        ("user", ["a", 3]),
        ("price", ["1.5", "2"]),
        ("age", [True, False]),
        ("genres", [["war"], ["love"]]),
        ("item", pl.Series(["a", "b"])),
    ],
)
def test_other_values_are_left_to_whole_columns(column: str, values: Any) -> None:
    table: dict[str, Any] = {
        "price": [1.0, 2], "age": [3, 4], "user": ["a", "b"], "item": [5, 6], "code": ["1f", "2"], "genres": ["", "a"],
        "version": ["3.1", "3.10"],
    }  # fmt: skip
    encoder = ValueEncoder(ENCODER)
    assert encoder.encode(table, 2) is not None
    assert encoder.encode({**table, column: values}, 2) is None


def test_values_with_weights_are_left_to_whole_columns() -> None:
    field = CategoricalField("genres", HashedIds(40), multi_valued=True, separator="|", weights="shares")
    table = {"genres": ["a|b"], "shares": ["1|2"]}
    assert ValueEncoder(Encoder((), (field,))).encode(table, 1) is None


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.serving.few_values.MOST_REMEMBERED", 12 * len(ENCODER.categorical))
    values = ValueEncoder(ENCODER)
    numbers = {"price": [0.0] * 10, "age": [0.0] * 10}
    for start in range(0, 200, 10):
        texts = [str(one) for one in range(start, start + 9)] + ["y" * (LONGEST_REMEMBERED + 1)]
        table = {**numbers, **dict.fromkeys(("user", "item", "version", "code", "genres"), texts)}
        found = values.encode(json.loads(json.dumps(table)), 10)
        assert found is not None
        assert np.array_equal(found.categorical, ENCODER.encode_table(as_columns(table), 10).categorical)
        assert all(len(known._found) <= 12 for known in values._known.values())
        assert all(len(text) <= LONGEST_REMEMBERED for known in values._known.values() for text in known._found)
