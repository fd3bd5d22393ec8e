"""The data of the benchmarks of the search: a sample holds whole rows, and is the same each time."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.data import load, sample
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


def test_real_data_is_written_once_and_sampled_alike(tmp_path: Path, shared_data: Path) -> None:
    if not (shared_data / "open_bandit_60k.parquet").exists():
        pytest.skip("Open Bandit is not beside the project")
    rows = {"train": 500, "validation": 200, "test": 0}
    first, again = load("open_bandit", tmp_path / "one", rows), load("open_bandit", tmp_path / "one", rows)
    other = load("open_bandit", tmp_path / "two", rows)

    assert first == again
    assert first.fingerprint == other.fingerprint
    assert (first.splits["train"].rows, first.splits["validation"].rows) == (500, 200)
    arrays = [np.load(one.directory / "train.categorical.npy") for one in (first, other)]
    assert np.array_equal(*arrays)
    assert load("open_bandit", tmp_path / "one").splits["train"].rows == 48_000
