"""Interactions are read from what a flat model has learned of the data, the same for the same seed."""

from pathlib import Path

import numpy as np
import torch

from shunter.engine.config import Execution
from shunter.extensions.towers.partitions import field_interactions
from tests.engine.synthetic import write_dataset


def test_fields_that_tell_the_same_interact_most(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=4_000, dense=1, single=4, bags=0, ids=8)
    for split in ("train", "validation", "test"):
        path = tmp_path / f"{split}.categorical.npy"
        ids = np.load(path)
        labels = np.load(tmp_path / f"{split}.label.npy")
        random = np.random.default_rng(len(ids))
        ids[:, 0] = random.integers(0, 4, len(ids)) * 2 + labels  # odd where the label is positive
        ids[:, 2] = random.integers(0, 4, len(ids)) * 2 + labels
        np.save(path, ids)
    execution = Execution(batch_size=256)
    found = field_interactions(dataset, execution, seed=1)
    assert found.shape == (4, 4)
    assert torch.equal(found, found.T)
    assert int(found.argmax()) in (2, 8), "the fields 0 and 2 both hold the label"
    assert torch.equal(field_interactions(dataset, execution, seed=1), found)
    assert not torch.equal(field_interactions(dataset, execution, seed=2), found)
