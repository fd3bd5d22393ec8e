"""Snapshots of one training: at the ends of its cycles, the same bit by bit after a kill, and models of their own."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shunter.engine.checkpoint.checked_files import snapshot_folder
from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import Checkpointing, ClickJob, Hooks, TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.loop.trainer import train
from shunter.engine.stopping import StopReason
from shunter.engine.trained_model import snapshots_of
from shunter.errors import RequestError
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.tasks.train import train_model
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import memory_of_rows, write_dataset

RATES = Hyperparameters(
    dense_learning_rate=0.02, embedding_learning_rate=0.3, learning_rate_schedule="cosine", cycles=2
)
PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ClickJob:
    dataset: Dataset = write_dataset(tmp_path_factory.mktemp("data"), rows=900)
    spec = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))
    return TrainingJob(dataset, spec, RATES, execution_of(PLACEMENT), Schedule(max_epochs=4, patience=4))


def weights(directory: Path) -> list[torch.Tensor]:
    return list(load_model(directory).state_dict().values())


def test_a_resumed_training_leaves_the_same_snapshots(job: ClickJob, tmp_path: Path) -> None:
    whole = train(job, checkpointing=Checkpointing(tmp_path / "whole"))
    steps = 0

    def stop() -> StopReason | None:
        nonlocal steps
        steps += 1
        return ENOUGH if steps == 30 else None  # within the last cycle

    train(job, Hooks(should_stop=stop), Checkpointing(tmp_path / "cut"))
    train(job, checkpointing=Checkpointing(tmp_path / "cut"))
    folders = [[snapshot_folder(tmp_path / name, epoch) for name in ("whole", "cut")] for epoch in (2, 4)]
    for one, other in folders:
        assert all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights(folders[0][0]), weights(folders[1][0]), strict=True))
    assert not snapshot_folder(tmp_path / "whole", 1).exists()
    assert [report.learning_rates["dense"] < 0.001 for report in whole.history] == [False, True, False, True]


def test_snapshots_are_models_of_their_own_beside_the_best(job: ClickJob, tmp_path: Path) -> None:
    trained = train_model(job, PLACEMENT, tmp_path / "once", name="cycles")
    found = list(snapshots_of(trained))
    assert [one.name for one in found] == ["snapshot-2", "snapshot-4"]
    for one in found:
        scored = evaluate(load_model(one.directory), job.dataset, "validation", job.execution).metrics
        assert scored.ne == pytest.approx(one.validation.ne, abs=1e-6)
        assert len(one.history) == one.best_epoch
    assert found[0].samples_seen * 2 == found[1].samples_seen == trained.samples_seen
    assert found[0].train_seconds < found[1].train_seconds


@pytest.mark.parametrize(("cycles", "schedule"), [(3, "cosine"), (2, "constant"), (0, "cosine")])
def test_cycles_that_part_no_training_are_refused(job: ClickJob, cycles: int, schedule: str) -> None:
    rates = replace(RATES, cycles=cycles, learning_rate_schedule=schedule)
    with pytest.raises(RequestError, match="cycles"):
        train(replace(job, hyperparameters=rates))


def test_tables_in_a_file_have_no_snapshots(job: ClickJob) -> None:
    memory = memory_of_rows(10, job.spec.embedding_dim, job.dataset)
    with pytest.raises(RequestError, match="Snapshots"):
        train(replace(job, execution=Execution(batch_size=64, embedding_memory_bytes=memory)))
