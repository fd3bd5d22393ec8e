"""The data of the benchmarks of the search: a sample holds whole rows, and is the same each time."""

from pathlib import Path

import numpy as np

from benchmarks.search.data import sample
from shunter.engine.data.dataset import Dataset, SplitStatistics
from shunter.models.spec import CategoricalFeature, Features

ROWS = 60


def numbered(folder: Path) -> Dataset:
    """Row r has id r, the bag [r] * (r % 3) and the label r % 2."""
    numbers = np.arange(ROWS)
    for part in ("train", "validation"):
        np.save(folder / f"{part}.label.npy", (numbers % 2).astype(np.float32))
        np.save(folder / f"{part}.categorical.npy", numbers.astype(np.int32)[:, None])
        np.save(folder / f"{part}.bag1.values.npy", np.repeat(numbers, numbers % 3).astype(np.int32))
        np.save(folder / f"{part}.bag1.offsets.npy", np.cumsum(np.append(0, numbers % 3)).astype(np.int64))
    dataset = Dataset(
        name="numbered",
        directory=folder,
        fingerprint="numbered",
        features=Features(
            dense=(),
            categorical=(
                CategoricalFeature(name="number", rows=ROWS, multi_valued=False),
                CategoricalFeature(name="bag", rows=ROWS, multi_valued=True),
            ),
        ),
        splits={part: SplitStatistics(rows=ROWS, positives=ROWS // 2) for part in ("train", "validation")},
        split_by="random",
        fields=(),
        quarantined_rows=0,
    )
    dataset.save()
    return dataset


def test_sample_holds_whole_rows_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "small").mkdir()
    smaller = sample(numbered(tmp_path / "whole"), tmp_path / "small", {"train": 17, "validation": 0})

    assert Dataset.load(tmp_path / "small") == smaller
    assert (smaller.splits["train"].rows, smaller.splits["validation"].rows) == (17, 0)
    for part, count in (("train", 17), ("validation", 0)):
        numbers = np.load(tmp_path / "small" / f"{part}.categorical.npy")[:, 0]
        labels = np.load(tmp_path / "small" / f"{part}.label.npy")
        values, offsets = (np.load(tmp_path / "small" / f"{part}.bag1.{one}.npy") for one in ("values", "offsets"))
        assert len(numbers) == len(set(numbers.tolist())) == count
        assert (np.diff(numbers) > 0).all()
        assert (labels == numbers % 2).all()
        assert smaller.splits[part].positives == labels.sum()
        assert offsets[-1] == len(values)
        for number, start, end in zip(numbers, offsets, offsets[1:], strict=False):
            assert values[start:end].tolist() == [number] * (number % 3)
