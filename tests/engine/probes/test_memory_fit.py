"""The search for the largest batch: exact against every boundary, and alive after trials that ran out of memory."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine.probes.memory_fit
from engine.config import Execution, Hyperparameters
from engine.probes.memory_fit import fit_batch, is_out_of_memory, largest_that_fits
from models.spec import ModelSpec
from shunter.errors import HardwareError, RequestError
from tests.engine.synthetic import write_dataset


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 300))
def test_the_boundary_is_found_exactly_and_nothing_is_tried_twice(largest: int, boundary: int, start: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= boundary

    found = largest_that_fits(fits, start=min(start, largest), largest=largest, tolerance=0)
    assert found == min(boundary, largest)
    assert len(set(tried)) == len(tried)
    assert all(1 <= size <= largest for size in tried)


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_the_boundary_lies_within_the_tolerance(boundary: int, start: int) -> None:
    found = largest_that_fits(lambda size: size <= boundary, start=start, largest=10_000, tolerance=0.1)
    assert found <= boundary <= max(1.1 * found, found + 1)


def test_trials_that_run_out_of_memory_are_answers(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=40_000)
    spec = ModelSpec(bottom_widths=(8,) * 40, top_widths=(8,))  # many activations and little arithmetic
    limit_bytes = 400 * 2**20
    fit = fit_batch(
        dataset, spec, Hyperparameters(), Execution(batch_size=8192), limit_bytes=limit_bytes, tolerance=0.5
    )
    assert 0 < fit.batch_size < dataset.splits["train"].rows
    peaks = {trial.batch_size: trial.peak_memory_bytes for trial in fit.trials}
    assert None in peaks.values()
    assert peaks[fit.batch_size] is not None
    assert all(peak <= limit_bytes for peak in peaks.values() if peak is not None)
    assert all(size > fit.batch_size for size, peak in peaks.items() if peak is None)


def test_tables_that_do_not_fit_leave_no_batch(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=500, ids=2_000_000)
    fit = fit_batch(dataset, ModelSpec(embedding_dim=64), Hyperparameters(), Execution(batch_size=2), limit_bytes=2**29)
    assert fit.batch_size == 0
    assert [trial.peak_memory_bytes for trial in fit.trials] == [None, None]


def test_a_model_that_cannot_be_built_is_refused_in_its_own_words(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=500)
    with pytest.raises(RequestError, match="embedding width 3"):
        fit_batch(dataset, ModelSpec(embedding_dim=3), Hyperparameters(), Execution(), limit_bytes=2**30)


@pytest.mark.parametrize(
    ("words", "expected"),
    [("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes", True), ("shapes differ", False)],
)
def test_only_want_of_memory_counts_as_such(words: str, expected: bool) -> None:
    assert is_out_of_memory(RuntimeError(words)) == expected


@pytest.mark.parametrize("ending", ["killed", "exit"])
def test_a_trial_that_the_kernel_kills_does_not_fit_and_one_that_fails_otherwise_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    dataset = write_dataset(tmp_path, rows=500)
    monkeypatch.setattr(engine.probes.memory_fit, "_trial", die_by_signal if ending == "killed" else exit_with_three)
    arguments = (dataset, ModelSpec(), Hyperparameters(), Execution(batch_size=1))
    if ending == "killed":
        assert fit_batch(*arguments, limit_bytes=2**30).batch_size == 0
    else:
        with pytest.raises(HardwareError, match="exit code 3"):
            fit_batch(*arguments, limit_bytes=2**30)


def die_by_signal(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_with_three(*_: object) -> None:
    os._exit(3)
