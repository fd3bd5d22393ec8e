"""Passes of a training: tried where they may pay, kept for later attempts, recorded whatever came of them."""

from pathlib import Path

import pytest

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.executors import training_passes
from shunter.engine.executors.compilation import Compilation
from shunter.engine.executors.training_passes import TriedPasses, try_training_passes, with_passes
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.passes.role import passes_of
from shunter.engine.passes.training import TrainingSubject
from shunter.errors import CheckpointError
from shunter.models.registry import model_spec
from tests.engine.synthetic import write_dataset


@pytest.fixture
def job(tmp_path: Path) -> ClickJob:
    dataset = write_dataset(tmp_path / "data", rows=400)
    spec = model_spec(family="dcnv2", embedding_dim=4, bottom_widths=(8,), top_widths=(12,))
    return TrainingJob(dataset, spec, Hyperparameters(), Execution(batch_size=50), Schedule())


def compilation(seconds: float | None) -> Compilation:
    return Compilation(compiled=False, reason="", steps=1_000, eager_step_seconds=seconds)


@pytest.mark.parametrize("seconds", [None, 0.1])
def test_a_short_training_tries_nothing(job: ClickJob, tmp_path: Path, seconds: float | None) -> None:
    assert try_training_passes(job, compilation(seconds), tmp_path, "dcnv2") == TriedPasses()
    assert not (tmp_path / training_passes.FILE).exists()


def test_a_long_one_tries_all_and_a_later_attempt_computes_alike(
    job: ClickJob, tmp_path: Path, shunter_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = try_training_passes(job, compilation(10.0), tmp_path, "dcnv2")
    assert {record.name for record in found.records} == {one.name for one in passes_of("training")}
    assert all(record.reason for record in found.records)
    execution = with_passes(job, found).execution
    assert bool(execution.rewriting) == any(one.is_kept for one in found.records if one.name == "rewriting")
    monkeypatch.setattr(training_passes, "passes_of", lambda _: pytest.fail("tried again"))
    assert try_training_passes(job, compilation(10.0), tmp_path, "dcnv2") == found
    (tmp_path / training_passes.FILE).write_text('{"rewriting": 3}')
    with pytest.raises(CheckpointError, match="does not record which optimisation passes"):
        try_training_passes(job, compilation(10.0), tmp_path, "dcnv2")


def test_what_is_not_for_a_training_says_so(job: ClickJob) -> None:
    subject = TrainingSubject(job, lambda _: pytest.fail("it was measured"))
    for one in passes_of("training"):
        assert one.applies(subject.with_execution(precision="bf16")) == "it is for full precision alone"
