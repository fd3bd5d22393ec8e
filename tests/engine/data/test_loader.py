"""Each row once, in a reproducible order, from any position."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shunter.engine.data.loader
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader, mean_ids_per_sample, shuffled_windows
from shunter.errors import DataError
from tests.engine.synthetic import write_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


def row_keys(batches: Iterable[Batch]) -> list[float]:
    """The first dense value of each row: distinct, so it names the row."""
    return [value for batch in batches for value in batch.dense[:, 0].tolist()]


@pytest.mark.parametrize("batch_size", [1, 64, 700, 5_000])
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_holds_each_row_once(dataset: Dataset, batch_size: int, shuffle: bool) -> None:
    loader = BatchLoader(dataset, "train", batch_size, shuffle=shuffle)
    batches = list(loader.batches())
    assert len(batches) == len(loader)
    expected = np.load(dataset.directory / "train.dense.npy")[:, 0].tolist()
    assert (sorted(row_keys(batches)) if shuffle else row_keys(batches)) == (sorted(expected) if shuffle else expected)


def test_a_row_keeps_its_fields_together(dataset: Dataset) -> None:
    dense = np.load(dataset.directory / "train.dense.npy")
    single = np.load(dataset.directory / "train.categorical.npy")
    values = np.load(dataset.directory / "train.bag3.values.npy")
    offsets = np.load(dataset.directory / "train.bag3.offsets.npy")
    labels = np.load(dataset.directory / "train.label.npy")
    row_of = {key: row for row, key in enumerate(dense[:, 0].tolist())}
    for batch in BatchLoader(dataset, "train", 128, shuffle=True, seed=4).batches():
        size = len(batch)
        for position, key in enumerate(row_keys([batch])):
            row = row_of[key]
            bags = [
                batch.values[batch.offsets[f * size + position] : batch.offsets[f * size + position + 1]].tolist()
                for f in range(4)
            ]
            assert bags[:3] == [[i] for i in single[row].tolist()]
            assert bags[3] == values[offsets[row] : offsets[row + 1]].tolist()
            assert batch.labels[position] == labels[row]


@settings(max_examples=15, deadline=None)
@given(batch_size=st.integers(1, 300), start=st.integers(0, 50), epoch=st.integers(0, 3), chunk=st.integers(1, 90))
def test_starting_later_gives_the_rest_of_the_same_epoch(
    dataset: Dataset, batch_size: int, start: int, epoch: int, chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:  # windows small enough for the data to have many
        patch.setattr(shunter.engine.data.loader, "CHUNK_ROWS", chunk)
        patch.setattr(shunter.engine.data.loader, "WINDOW_CHUNKS", 3)
        loader = BatchLoader(dataset, "train", batch_size, shuffle=True, seed=1)
        whole = list(loader.batches(epoch=epoch))
        rest = list(loader.batches(epoch=epoch, start_batch=start))
        assert len(rest) == max(len(whole) - start, 0)
        assert row_keys(rest) == row_keys(whole[start:])


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 2_000), chunk=st.integers(1, 200), chunks=st.integers(1, 5), seed=st.integers(0, 9))
def test_windows_hold_each_row_once_and_stay_bounded(rows: int, chunk: int, chunks: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shunter.engine.data.loader, "CHUNK_ROWS", chunk)
        patch.setattr(shunter.engine.data.loader, "WINDOW_CHUNKS", chunks)
        windows = list(shuffled_windows(rows, seed=seed, epoch=0))
    assert sorted(np.concatenate(windows).tolist()) == list(range(rows))
    assert max(map(len, windows)) <= chunk * chunks


def test_epochs_and_seeds_have_orders_of_their_own_and_keep_them(dataset: Dataset) -> None:
    def order(seed: int, epoch: int) -> list[float]:
        return row_keys(BatchLoader(dataset, "train", 100, shuffle=True, seed=seed).batches(epoch=epoch))

    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


@pytest.mark.parametrize(("dense", "single", "bags"), [(0, 1, 0), (0, 0, 1), (3, 0, 2)])
def test_any_mix_of_fields_is_read(tmp_path: Path, dense: int, single: int, bags: int) -> None:
    dataset = write_dataset(tmp_path, rows=100, dense=dense, single=single, bags=bags)
    batches = list(BatchLoader(dataset, "train", 32, shuffle=True).batches())
    assert sum(map(len, batches)) == 70
    assert all(batch.dense.shape == (len(batch), dense) for batch in batches)
    assert all(batch.offsets.numel() == (single + bags) * len(batch) + 1 for batch in batches)


def test_a_field_without_any_id_is_read(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=100)
    np.save(tmp_path / "train.bag3.values.npy", np.empty(0, np.int32))
    np.save(tmp_path / "train.bag3.offsets.npy", np.zeros(71, np.int64))
    batches = list(BatchLoader(dataset, "train", 32, shuffle=True).batches())
    assert all(torch.equal(batch.offsets[-1], torch.tensor(3 * len(batch)).int()) for batch in batches)


def test_mean_ids_follow_from_the_offsets(dataset: Dataset) -> None:
    means = mean_ids_per_sample(dataset)
    values = np.load(dataset.directory / "train.bag3.values.npy")
    assert means == {"single0": 1.0, "single1": 1.0, "single2": 1.0, "bag0": len(values) / 700}


def test_an_id_out_of_range_names_the_field(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=100)
    path = tmp_path / "train.categorical.npy"
    single = np.load(path)
    single[5, 1] = 51
    np.save(path, single)
    with pytest.raises(DataError, match="'single1'"):
        list(BatchLoader(dataset, "train", 32).batches())


@pytest.mark.parametrize("name", ["train.label.npy", "train.categorical.npy", "train.bag3.offsets.npy"])
def test_a_missing_or_truncated_array_is_named(tmp_path: Path, name: str) -> None:
    dataset = write_dataset(tmp_path, rows=1_000)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(DataError, match=name):
        BatchLoader(dataset, "train", 32)
    path.unlink()
    with pytest.raises(DataError, match=name):
        BatchLoader(dataset, "train", 32)


def test_an_array_of_another_length_is_named(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=100)
    np.save(tmp_path / "train.label.npy", np.zeros(69, np.float32))
    with pytest.raises(DataError, match=r"train\.label\.npy"):
        BatchLoader(dataset, "train", 32)
