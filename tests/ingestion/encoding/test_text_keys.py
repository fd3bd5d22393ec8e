"""Keys of many columns at once are those of each by itself, and of a value alone."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from shunter.ingestion.encoding import columns as read

VALUES = (
    st.none() | st.text(max_size=5) | st.sampled_from(["", " ", "5", "5.0", " 5.00 ", "-0.0", "007", "5.5", "\x00"])
)


@given(st.integers(0, 5).flatmap(lambda rows: st.lists(st.lists(VALUES, min_size=rows, max_size=rows), max_size=4)))
def test_many_columns_have_the_keys_of_each(columns: list[list[str | None]]) -> None:
    series = [pl.Series("a", values, pl.String) for values in columns]
    found = [keys.tolist() for keys in read.text_keys_of(series)]
    assert found == [read.text_keys(one).tolist() for one in series]
    assert found == [[read.text_keys(one[place : place + 1])[0] for place in range(len(one))] for one in series]
