"""The short probes run, and leave threads and random numbers as they were."""

import pytest
import torch

from engine.reference_steps import SHAPES, TableShape, time_smallest_step, time_tables

CPU = torch.device("cpu")


def test_the_smallest_step_is_timed_and_its_operators_counted() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    seconds, operators = time_smallest_step(CPU, threads=1, seconds=0.01)
    assert seconds > 0
    assert operators > 50
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("shape", SHAPES)
def test_tables_of_every_shape_are_timed(shape: TableShape) -> None:
    assert time_tables(CPU, shape, threads=1, large_bytes=2**22, seconds=0.001) > 0
