"""A graph model goes on elsewhere on this machine from its checkpoint, as a model of clicks does."""

from pathlib import Path
from typing import Any, cast

import pytest

from shunter.engine.config import Execution, Schedule
from shunter.engine.executors.move_monitor import TrainingProgress
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.extensions.fleet.better import MigratingExecutor
from shunter.hardware.types import Placement
from shunter.models.graph import graph_spec
from tests.engine.ranking.data import ranking_data

EPOCHS = 4
BEGUN = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
AFTER = BEGUN.model_copy(update={"threads": 2})


class MovesOnce:
    """Moves a training to two threads, after its second epoch at the soonest."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.asked: list[TrainingProgress] = []

    def choose(self, here: Placement, progress: TrainingProgress) -> Placement | None:
        self.asked.append(progress)
        return here.model_copy(update={"threads": 2}) if here.threads == 1 and len(self.epochs) > 1 else None

    def take(self, here: Placement, after: Placement) -> bool:
        return True


@pytest.fixture(autouse=True)
def _asked_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.engine.executors.move_monitor.LOOK_SECONDS", 0.0)


def test_a_graph_model_moves(tmp_path: Path) -> None:
    mover = MovesOnce()
    job = TrainingJob(
        ranking_data(tmp_path / "clicks"),
        graph_spec(family="lightgcn", embedding_dim=4),
        RankingHyperparameters(),
        Execution(batch_size=64),
        Schedule(max_epochs=EPOCHS, patience=EPOCHS),
    )
    executor = MigratingExecutor(BEGUN, cast(Any, mover))
    hooks = Hooks(on_epoch=lambda report: mover.epochs.append(report.epoch))
    result = executor.run(job, hooks, Checkpointing(tmp_path / "checkpoint"))
    assert mover.epochs == list(range(1, EPOCHS + 1)), "no epoch is trained twice"
    assert [report.epoch for report in result.history] == mover.epochs
    assert executor.placement == AFTER
    assert len(executor.moves) == 1
    assert all(0 < progress.share <= 1 and progress.seconds_left >= 0 for progress in mover.asked)
