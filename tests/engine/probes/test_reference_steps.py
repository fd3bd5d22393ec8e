"""The short probes run, and leave threads and random numbers as they were."""

from typing import Literal

import pytest
import torch

from shunter.engine.probes.reference_steps import SHAPES, TableShape, time_reference_step, time_tables

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
