"""Loader of batches from an ingested data set: memory-mapped, in a reproducible order, from any position."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from shunter.engine.data.arrays import LazyArray, map_array, read_array
from shunter.engine.data.batch import Bags, Batch, Targets, make_batch
from shunter.engine.data.dataset import Dataset, SplitName

CHUNK_ROWS = 4_096
WINDOW_CHUNKS = 256


class BatchLoader:
    """Loader that reads one split of a data set in batches; the last batch of an epoch may be smaller.

    Shuffled, the order is drawn from `seed` and the epoch. Chunks of consecutive rows are permuted, and rows within
    windows of a million rows, so that a large file is read nearly in sequence and memory stays bounded. A split that
    fits into one window is permuted completely.

    Args:
        dataset: Data set with the arrays.
        split: `train`, `validation` or `test`.
        batch_size: Samples per batch.
        shuffle: Whether to permute the rows anew in each epoch.
        seed: Seed of the permutations.
        grouped_by: Single-valued field whose rows are put side by side in each window after the permutation; a row of
            id 0, an unknown value, has no group. None puts no rows side by side.

    Raises:
        DataError: An array is missing or of another size than the description states.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: SplitName,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        grouped_by: str | None = None,
    ) -> None:
        self.features = dataset.features
        self.rows = dataset.splits[split].rows
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self._arrays = _SplitArrays(dataset, split)
        self._groups = None if grouped_by is None else self._arrays.ids_of(grouped_by)

    def __len__(self) -> int:
        return math.ceil(self.rows / self.batch_size)

    def batches(self, *, epoch: int = 0, start_batch: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch.

        The epoch selects the permutation; `start_batch` batches at the front are skipped without reading them.

        Raises:
            DataError: An id is outside its table; the message names the field.
        """
        return map(self.read, self.rows_of_batches(epoch=epoch, start_batch=start_batch))

    def rows_of_batches(self, *, epoch: int = 0, start_batch: int = 0) -> Iterator[slice | np.ndarray]:
        """Yield the row numbers of each batch of an epoch, without reading the rows; see `batches`."""
        if not self.shuffle:
            for start in range(start_batch * self.batch_size, self.rows, self.batch_size):
                yield slice(start, min(start + self.batch_size, self.rows))
            return
        skip = start_batch * self.batch_size
        remainder = np.empty(0, dtype=np.int64)
        for window in shuffled_windows(self.rows, seed=self.seed, epoch=epoch):
            rows = window if self._groups is None else make_groups_consecutive(window, self._groups)
            skipped = min(skip, len(rows))
            skip -= skipped
            order = np.concatenate([remainder, rows[skipped:]])
            full = len(order) - len(order) % self.batch_size
            for start in range(0, full, self.batch_size):
                yield order[start : start + self.batch_size]
            remainder = order[full:]
        if len(remainder):
            yield remainder

    def read(self, rows: slice | np.ndarray) -> Batch:
        """Read the batch with the given rows, an item of `rows_of_batches`; several threads may call it at a time."""
        batch = self._arrays.read(rows)
        if self._groups is None:
            return batch
        groups = self._groups[rows]
        return replace(batch, groups=torch.from_numpy(np.where(groups == 0, np.int32(-1), groups)))

    def targets(self) -> Targets:
        """Return labels and weights of the whole split, in the order of its rows."""
        return self._arrays.targets(slice(0, self.rows))


def shuffled_windows(rows: int, *, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """Yield the shuffled row numbers of an epoch in windows, which together hold each row number once.

    Args:
        rows: Rows of the split.
        seed: Seed of the permutation.
        epoch: Epoch; each has its own permutation.
    """
    generator = np.random.default_rng([seed, epoch])
    chunks = generator.permutation(math.ceil(rows / CHUNK_ROWS))
    for start in range(0, len(chunks), WINDOW_CHUNKS):
        first_rows = chunks[start : start + WINDOW_CHUNKS, np.newaxis] * CHUNK_ROWS
        window = (first_rows + np.arange(CHUNK_ROWS)).ravel()
        window = window[window < rows]
        generator.shuffle(window)
        yield window


def make_groups_consecutive(rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Put the rows of a group side by side in shuffled `rows`, with the groups in the order of their first rows."""
    _, first, group = np.unique(groups[rows], return_index=True, return_inverse=True)
    return rows[np.argsort(first[group], kind="stable")]


def mean_ids_per_sample(dataset: Dataset) -> dict[str, float]:
    """Return the mean number of ids per training sample for each categorical field: 1 if the field is single-valued."""
    means = {}
    rows = dataset.splits["train"].rows
    for position, field in enumerate(dataset.features.categorical):
        means[field.name] = 1.0
        if field.multi_valued:
            means[field.name] = float(read_array(dataset.directory / f"train.bag{position}.offsets.npy")[-1]) / rows
    return means


def training_numbers(dataset: Dataset) -> np.ndarray:
    """Return the dense features of the training part, float32 `[rows, dense features]`, memory-mapped."""
    shape = dataset.splits["train"].rows, len(dataset.features.dense)
    return read_array(dataset.directory / "train.dense.npy", shape)


class _SplitArrays:
    """Memory-mapped arrays of one split."""

    def __init__(self, dataset: Dataset, split: SplitName) -> None:
        self.features = dataset.features
        rows = dataset.splits[split].rows
        directory = dataset.directory
        single = [field.name for field in self.features.categorical if not field.multi_valued]
        tasks = len(self.features.tasks)
        self.labels = map_array(directory / f"{split}.label.npy", (rows, tasks) if tasks else (rows,))
        self.weights = map_array(directory / f"{split}.weight.npy", (rows,)) if dataset.is_weighted else None
        self.dense = self.categorical = None
        if self.features.dense:
            self.dense = map_array(directory / f"{split}.dense.npy", (rows, len(self.features.dense)))
        if single:
            self.categorical = map_array(directory / f"{split}.categorical.npy", (rows, len(single)))
        self.bags: list[tuple[np.ndarray | LazyArray, np.ndarray, np.ndarray | LazyArray | None]] = []
        for position, field in enumerate(self.features.categorical):
            if field.multi_valued:
                offsets = read_array(directory / f"{split}.bag{position}.offsets.npy", (rows + 1,))
                bag, ids = f"{split}.bag{position}", (int(offsets[-1]),)
                weights = map_array(directory / f"{bag}.weights.npy", ids) if field.is_weighted else None
                self.bags.append((map_array(directory / f"{bag}.values.npy", ids), offsets, weights))

    def ids_of(self, field: str) -> np.ndarray:
        """Return the ids of a single-valued field, int32 `[rows]`."""
        assert self.categorical is not None, "the field is one of the single-valued ones"
        single = [one.name for one in self.features.categorical if not one.multi_valued]
        return _rows_of(self.categorical, slice(0, len(self.labels)))[:, single.index(field)].copy()

    def read(self, rows: slice | np.ndarray, whole: slice | np.ndarray | None = None) -> Batch:
        """Return a batch of `rows`; if several processes share the batch, `whole` has its rows in all processes."""
        targets = self.targets(rows)
        shares = totals = None
        if self.weights is not None or targets.labels.ndim > 1:
            totals = (targets if whole is None else self.targets(whole)).totals()
            weights = np.ones_like(targets.labels) if targets.weights is None else targets.weights
            scale = np.array([1 / total if total else 0.0 for total in totals])
            shares = (weights * (scale if weights.ndim > 1 else scale[0])).astype(np.float32)
        return make_batch(
            self.features,
            labels=targets.labels,
            shares=shares,
            totals=totals,
            dense=None if self.dense is None else _rows_of(self.dense, rows),
            categorical=None if self.categorical is None else _rows_of(self.categorical, rows),
            bags=[_bags_of(*bag, rows) for bag in self.bags],
        )

    def targets(self, rows: slice | np.ndarray) -> Targets:
        """Return labels and weights of the given rows."""
        labels = _rows_of(self.labels, rows)
        if self.weights is None and labels.ndim == 1:
            return Targets(labels=labels)
        return Targets.of(labels, None if self.weights is None else _rows_of(self.weights, rows))


def _rows_of(array: np.ndarray | LazyArray, rows: slice | np.ndarray) -> np.ndarray:
    return np.array(array[rows]) if isinstance(rows, slice) else array.take(rows, axis=0)


def _bags_of(
    values: np.ndarray | LazyArray,
    offsets: np.ndarray,
    weights: np.ndarray | LazyArray | None,
    rows: slice | np.ndarray,
) -> Bags:
    if isinstance(rows, slice):
        bounds = offsets[rows.start : rows.stop + 1]
        ids = slice(bounds[0], bounds[-1])
        own = None if weights is None else np.array(weights[ids])
        return Bags(values=np.array(values[ids]), lengths=np.diff(bounds), weights=own)
    starts = offsets.take(rows)
    lengths = offsets.take(rows + 1) - starts
    # Position of each id in `values`: its bag's start, plus its rank within the bag.
    ends = lengths.cumsum()
    positions = np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])
    own = None if weights is None else weights.take(positions)
    return Bags(values=values.take(positions), lengths=lengths, weights=own)
