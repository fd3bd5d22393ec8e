"""The short measurement takes as many steps as asked, and leaves nothing behind."""

import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.probes.steps import time_steps
from shunter.models.registry import model_spec
from tests.engine.synthetic import write_dataset


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("batch_size", [64, 4_096])  # more steps than an epoch has, and more rows than there are
def test_a_probe_measures_the_steps_asked_for(tmp_path: Path, precision: str, batch_size: int) -> None:
    dataset = write_dataset(tmp_path, rows=500)
    random_state, threads = torch.get_rng_state(), torch.get_num_threads()
    execution = Execution(threads=threads + 1, precision=precision, batch_size=batch_size)  # type: ignore[arg-type]
    timing = time_steps(dataset, model_spec(), Hyperparameters(), execution, steps=12)
    assert timing.steps == 12
    assert 0 < timing.step_seconds_p10 <= timing.step_seconds <= timing.step_seconds_p90
    assert timing.wait_seconds > 0
    assert timing.load_seconds > 0
    assert timing.peak_memory_bytes > 10 * 2**20
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == threads
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.mark.parametrize("kernel", ["fbgemm", pytest.param("torch", marks=pytest.mark.long)])
def test_a_table_row_takes_its_weights_and_one_float(tmp_path: Path, kernel: str) -> None:
    if kernel == "fbgemm":
        pytest.importorskip("fbgemm_gpu")
    dim, small, large = 16, 300_000, 1_200_000
    # Each in a process of its own: what an earlier test has freed there would hold a part of the second measurement.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as fresh_processes:
        peaks = [
            fresh_processes.submit(peak_memory_bytes, tmp_path / str(ids), ids, dim, kernel).result()
            for ids in (small, large)
        ]
    bytes_a_row = (peaks[1] - peaks[0]) / (4 * (large - small))
    assert 4 * dim < bytes_a_row < 1.05 * 4 * (dim + 1)


def peak_memory_bytes(directory: Path, ids: int, dim: int, kernel: str) -> int:
    """Peak of a short training with tables of that many rows."""
    if kernel == "torch":
        sys.modules["fbgemm_gpu"] = None  # type: ignore[assignment]
    dataset = write_dataset(directory, rows=500, ids=ids)
    spec, execution = model_spec(embedding_dim=dim), Execution(batch_size=64)
    return time_steps(dataset, spec, Hyperparameters(), execution, steps=3).peak_memory_bytes


def test_a_larger_model_shows_in_the_memory(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=500, ids=200_000)
    small, large = (
        time_steps(dataset, model_spec(embedding_dim=dim), Hyperparameters(), Execution(batch_size=64), steps=3)
        for dim in (4, 64)
    )
    tables_bytes = 4 * 200_000 * (64 - 4) * 4
    assert large.peak_memory_bytes - small.peak_memory_bytes > 0.8 * tables_bytes
