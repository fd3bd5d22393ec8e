"""Rows that are asked for most have the highest levels, whether their ids are ranks or not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shunter.engine.data.dataset import Dataset
from shunter.extensions.tiers import row_use
from shunter.extensions.tiers.row_use import row_levels, use_levels
from shunter.ingestion.encoding.vocabulary import access_curve
from tests.engine.synthetic import write_dataset

IDS = 400


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """With the access curves that ingestion would have told; ids are ranks, of the second field mixed as by a hash."""
    dataset = write_dataset(tmp_path_factory.mktemp("data"), rows=20_000, ids=IDS)
    path = dataset.directory / "train.categorical.npy"
    ids = np.load(path)
    for column in range(2):
        by_frequency = np.argsort(-np.bincount(ids[:, column], minlength=IDS + 1), kind="stable")
        ids[:, column] = np.argsort(by_frequency)[ids[:, column]]
    ids[:, 1] = np.random.default_rng(1).permutation(IDS + 1)[ids[:, 1]]
    np.save(path, ids)
    counts = {field.name: column for field, column in zip(dataset.features.categorical, _counts(dataset), strict=True)}
    fields = [replace(one, access_curve=access_curve(counts[one.name])) if one.name in counts else one
              for one in dataset.fields]  # fmt: skip
    return replace(dataset, fields=tuple(fields))


def _counts(dataset: Dataset) -> list[np.ndarray]:
    """Lookups of each row, table by table."""
    columns = list(np.load(dataset.directory / "train.categorical.npy").T)
    columns.append(np.load(dataset.directory / "train.bag3.values.npy"))
    return [np.bincount(ids, minlength=rows) for ids, rows in zip(columns, dataset.features.table_rows, strict=True)]


def test_levels_are_those_of_what_the_log_asks_for(dataset: Dataset) -> None:
    found = np.split(row_levels(dataset), np.cumsum(dataset.features.table_rows)[:-1])
    samples = dataset.splits["train"].rows
    for levels, counts in zip(found, _counts(dataset), strict=True):
        assert abs(levels.astype(int) - use_levels(counts / samples))[counts > 20].max() <= 2
        top = np.argsort(-counts, kind="stable")[:40]  # what a cache of a tenth would hold
        kept = np.argsort(-levels.astype(int), kind="stable")[:40]
        assert counts[kept].sum() >= 0.97 * counts[top].sum()


def test_of_a_longer_log_parts_are_looked_at_and_ranks_tell_of_rows_that_these_lack(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_use, "SAMPLES", 1_000)
    monkeypatch.setattr(row_use, "PART", 100)
    ranked, mixed, *_ = np.split(row_levels(dataset), np.cumsum(dataset.features.table_rows)[:-1])
    assert (np.diff(ranked.astype(int)) <= 0).all()
    counts = _counts(dataset)
    assert (ranked[counts[0] > 3] > 0).all()
    assert (mixed[counts[1] > 200] > 0).all()
    assert not mixed.all()


def test_levels_are_quarters_of_an_octave_below_one_a_sample() -> None:
    assert use_levels(np.array([26.0, 1.0, 0.5, 0.25, 2.0**-70, 0.0])).tolist() == [255, 255, 251, 247, 1, 0]


def test_nothing_asked_for_is_no_level(tmp_path: Path) -> None:
    assert not row_use._levels(3, (), np.empty(0, np.int32), 10).any()
