"""The short probes run, and leave threads and random numbers as they were."""

from typing import Literal

import pytest
import torch

from shunter.engine.probes.reference_steps import (
    LOOKUPS,
    ROW_BYTES,
    SHAPES,
    TableShape,
    time_embeddings,
    time_reference_step,
    time_tables,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_reference_step_is_timed(precision: Literal["fp32", "bf16"]) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    assert time_reference_step(CPU, threads=1, precision=precision, batch_size=16, seconds=0.001) > 0
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("shape", SHAPES)
def test_tables_of_every_shape_are_timed(shape: TableShape) -> None:
    assert time_tables(CPU, shape, threads=1, large_bytes=2**22, seconds=0.001) > 0


def test_lookup_and_update_are_timed_for_each_width() -> None:
    times = time_embeddings(torch.device("cpu"), thread_count=1, table_bytes=2**20, seconds_each=0.001)
    assert [one.row_bytes for one in times] == list(ROW_BYTES)
    for one in times:
        assert one.payload_bytes == LOOKUPS * one.row_bytes
        for durations in (one.lookup_seconds, one.update_seconds):
            assert len(durations) >= 3
            assert min(durations) > 0


def test_the_random_state_and_the_threads_are_given_back() -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    time_embeddings(torch.device("cpu"), thread_count=threads + 1, table_bytes=2**18, seconds_each=0.001)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
