"""What JSON says of a column is encoded as a frame of the same values is, whatever they are."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.ingestion.encoding import columns as read
from shunter.serving.errors import RefusedError
from shunter.serving.table import Table, columns_of_records

TEXTS = st.text(max_size=4) | st.sampled_from(["5", "5.0", "007", " 7 ", "nan", "-3.00"])
WHOLE = st.integers(-(2**63), 2**63 - 1)
FRACTIONS = st.floats(allow_nan=False, allow_infinity=False)
COLUMNS = st.one_of(
    *(st.lists(values | st.none(), min_size=1, max_size=6) for values in (TEXTS, FRACTIONS, st.booleans())),
    st.lists(WHOLE, min_size=1, max_size=6),
    st.lists(TEXTS | st.integers(-99, 99) | FRACTIONS, min_size=1, max_size=6),
)


def frame_of(values: list[Any]) -> pl.Series:
    return read.from_pandas(pd.Series(values))


@given(COLUMNS)
def test_a_column_has_the_keys_and_numbers_that_a_frame_of_its_values_has(values: list[Any]) -> None:
    series, other = Table(len(values), {"a": values}).series("a"), frame_of(values)
    assert read.text_keys(series).tolist() == read.text_keys(other).tolist()
    np.testing.assert_array_equal(read.numbers(series)[0], read.numbers(other)[0])


@given(st.lists(st.none() | st.lists(TEXTS, max_size=3), min_size=1, max_size=5))
def test_lists_have_the_values_that_a_frame_of_them_has(values: list[Any]) -> None:
    bag, other = read.bags(Table(len(values), {"a": values}).series("a"), None), read.bags(frame_of(values), None)
    assert bag.keys.tolist() == other.keys.tolist()
    assert bag.offsets.tolist() == other.offsets.tolist()


def test_whole_numbers_beside_null_stay_whole_and_longer_ones_become_texts() -> None:
    assert Table(2, {"a": [2**60 + 1, None]}).series("a").to_list() == [2**60 + 1, None]
    assert Table(2, {"a": [2**70, 1]}).series("a").to_list() == [str(2**70), "1"]
    assert Table(2, {"a": [float("nan"), "x"]}).series("a").to_list() == [None, "x"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([{"a": 1}], "holds a JSON object"),
        ([[1], 2], "mixes lists with other values"),
        ([[[1]]], "holds lists of lists"),
        ([[{}]], "holds a JSON object"),
    ],
)
def test_what_no_column_holds_is_refused(values: list[Any], told: str) -> None:
    with pytest.raises(RefusedError, match=f"The column price {told}"):
        Table(len(values), {"price": values}).series("price")


def test_what_a_record_does_not_name_is_missing_in_it() -> None:
    assert columns_of_records([{"a": 1}, {"b": 2}]) == {"a": [1, None], "b": [None, 2]}
