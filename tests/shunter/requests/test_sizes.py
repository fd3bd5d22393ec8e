"""Sizes as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shunter.requests import TrainRequest
from shunter.validation import parse_bytes


@given(st.integers(1, 2**20), st.sampled_from([("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("MB", 10**6), ("", 1)]))
def test_a_number_with_its_unit(number: int, unit: tuple[str, int]) -> None:
    assert parse_bytes(f"{number}{unit[0]}") == parse_bytes(f" {number} {unit[0]}") == number * unit[1]


@pytest.mark.parametrize("text", ["", "much", "0MiB", "-2GiB", "2XiB", "nan", "inf GiB", "1e400GiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write a number with its unit"):
        parse_bytes(text)


def test_memory_of_tables_is_a_size() -> None:
    with pytest.raises(ValidationError, match="not a size"):
        TrainRequest(embedding_memory="lots")


def test_a_job_says_the_bytes() -> None:
    assert TrainRequest(embedding_memory="1.5GiB").placement.embedding_memory_bytes == 3 * 2**29
    assert TrainRequest().placement.embedding_memory_bytes is None
