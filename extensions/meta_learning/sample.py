"""Sample of a data set's rows, for the computation of its meta-features."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader


@dataclass(frozen=True)
class Sample:
    """Sampled rows of one part.

    Attributes:
        labels: 0 or 1, float64 `[rows]`; the main label if there are several tasks.
        dense: float64 `[rows, dense features]`.
        ids: Ids of each categorical field, int64, concatenated over the rows.
        rows_of: Row index of each id of each categorical field, int64, ascending.
    """

    labels: np.ndarray
    dense: np.ndarray
    ids: tuple[np.ndarray, ...]
    rows_of: tuple[np.ndarray, ...]

    @property
    def rows(self) -> int:
        """Number of rows of the sample."""
        return len(self.labels)


def read_sample(dataset: Dataset, part: Literal["train", "validation"], rows: int, seed: int) -> Sample:
    """Read all rows of a part, or a random sample without replacement, in the order of the rows."""
    total = dataset.splits[part].rows
    chosen = np.arange(total)
    if total > rows:
        chosen = np.sort(np.random.default_rng([seed, total]).choice(total, rows, replace=False, shuffle=False))
    batch = BatchLoader(dataset, part, max(1, len(chosen))).read(chosen)
    fields = len(dataset.features.categorical)
    lengths = np.diff(batch.offsets.numpy()).reshape(fields, -1)
    ids = np.split(batch.values.numpy().astype(np.int64), np.cumsum(lengths.sum(axis=1))[:-1])
    labels = batch.labels.numpy().astype(np.float64)
    return Sample(
        labels=labels if labels.ndim == 1 else labels[:, 0],
        dense=batch.dense.numpy().astype(np.float64),
        ids=tuple(ids),
        rows_of=tuple(np.repeat(np.arange(len(chosen)), of_field) for of_field in lengths),
    )
