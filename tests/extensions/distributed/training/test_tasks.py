"""Several labels and weights of samples, learned by two processes as by one."""

from pathlib import Path
from typing import Any

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.engine.job import TrainingJob
from shunter.engine.loop.trainer import train
from tests.engine.several_labels import with_tasks, with_weights
from tests.engine.synthetic import write_dataset
from tests.extensions.distributed.training.ranks import (
    EXECUTION,
    RATES,
    SCHEDULE,
    SPEC,
    run,
    train_and_stop,
    train_here,
)

pytest.importorskip("torchrec")


def curves(history: Any) -> list[float]:
    """Losses of both tasks, epoch by epoch."""
    return [
        loss
        for report in history
        for loss in (
            report.train_logloss,
            report.other_train_loglosses["conversion"],
            report.validation.logloss,
            report.validation.others["conversion"].logloss,
        )
    ]


def both(dataset: Dataset, folder: Path) -> dict[str, Any]:
    train_and_stop(dataset, folder / "resumed", 13)
    return {"whole": train_here(dataset, folder / "whole"), "resumed": train_here(dataset, folder / "resumed")}


def test_two_processes_learn_as_one_and_resume_bit_by_bit(tmp_path: Path) -> None:
    dataset = with_weights(with_tasks(write_dataset(tmp_path / "data", rows=2_000)))
    expected = curves(train(TrainingJob(dataset, SPEC, RATES, EXECUTION, SCHEDULE)).history)
    for rank in run(2, tmp_path / "group", both, dataset, tmp_path / "checkpoints"):
        assert curves(rank["whole"]["history"]) == pytest.approx(expected, abs=1e-5)
        assert curves(rank["resumed"]["history"]) == curves(rank["whole"]["history"])
