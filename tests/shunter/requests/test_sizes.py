"""Sizes as users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shunter.requests import TrainRequest
from shunter.requests.sizes import parse_bytes


@given(st.integers(1, 2**20), st.sampled_from([("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("MB", 10**6), ("", 1)]))
def test_a_number_with_its_unit(number: int, unit: tuple[str, int]) -> None:
    assert parse_bytes(f"{number}{unit[0]}") == parse_bytes(f" {number} {unit[0]}") == number * unit[1]


@pytest.mark.parametrize("text", ["", "much", "0MiB", "-2GiB", "2XiB", "nan", "inf GiB", "1e400GiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size: write a number with its unit"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"embedding_memory": "lots"}, "no size"),
        ({"model": "lightgcn"}, "for models of clicks: --model lightgcn"),
        ({"processes": 2, "cluster": "auto"}, "--processes 2 on a cluster keeps all embedding tables in"),
        ({"search_space": "architecture"}, "--search-space architecture keeps all embedding tables in memory"),
        ({"search_space": "wide"}, "--search-space wide keeps all"),
        ({"ensemble_of": "snapshots", "trials": 2}, "--ensemble-of snapshots keeps all"),
    ],
)
def test_memory_of_tables_where_it_cannot_be_kept_is_refused(options: dict, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TrainRequest(**{"embedding_memory": "1GiB", **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"processes": 2}, "--processes 2 does not: leave one of them out"),
        ({"plan": "plan.yaml"}, "--plan plan.yaml does not"),
        ({"search_space": "architecture"}, "--search-space architecture does not"),
        ({"ensemble_memory": "1MiB"}, "--ensemble-memory does not"),
        ({"embedding_memory": "1GiB"}, "table_precision=fp16 keeps all embedding tables in memory: leave it out"),
    ],
)
def test_tables_in_fp16_lie_whole_in_one_process(options: dict, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TrainRequest(set=("table_precision=fp16",), **options)


def test_a_job_says_the_bytes() -> None:
    assert TrainRequest(embedding_memory="1.5GiB").placement.embedding_memory_bytes == 3 * 2**29
    assert TrainRequest().placement.embedding_memory_bytes is None
