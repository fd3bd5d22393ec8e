"""A model of another family, with batch normalisation, trained by two processes: they keep one model between them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.models.registry import model_spec
from tests.engine.synthetic import write_dataset
from tests.extensions.distributed.training.ranks import run, train_here

pytest.importorskip("torchrec")
SPEC = model_spec(family="dcnv2", embedding_dim=8, bottom_widths=(8,), top_widths=(16,), batch_norm=True)


def test_processes_agree_on_weights_and_on_the_statistics_of_batches(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", rows=1_000)
    options = {
        "spec": SPEC,
        "hyperparameters": Hyperparameters(embedding_learning_rate=0.1, embedding_l2=1e-3),
        "schedule": Schedule(max_epochs=1),
    }
    first, second = run(2, tmp_path / "group", _train, dataset, tmp_path / "checkpoints", options)
    statistics = [name for name in first["layers"] if "running" in name]
    assert len(statistics) == 2
    for name in first["layers"]:
        assert torch.equal(first["layers"][name], second["layers"][name]), name
    assert first["layers"][statistics[0]].any(), "nothing was remembered"
    assert first["history"][0].validation == second["history"][0].validation
    assert first["history"][0].validation.ne < 1


def _train(dataset: Dataset, directory: Path, options: dict[str, Any]) -> dict[str, Any]:
    return train_here(dataset, directory, **options)
