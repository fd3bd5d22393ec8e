"""Target and count encodings: numeric features computed from the training rows of each value of a column.

A target encoding is the share of positives among the training rows with a value, shrunk towards the share of all rows
(Micci-Barreca, 2001). Training rows get the share without the rows of their own fold, so that no label enters its own
feature. All other rows, and rows to be scored, get the share of all training rows.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.ingestion.batch import Columns
from shunter.ingestion.encoding.split import row_hashes
from shunter.ingestion.fields import ValueEncoding

FOLDS = 5
_FOLD_SEED = 1
_CONSTANT = 1e-6  # deviation below which all values have one number
_MOST_FRAMES = 64  # parts of the counts that are held before they are summed
STATED = ("name", "field", "default", "mean", "deviation")  # what is stored beside the arrays
Keys = NDArray[np.uint64]
Numbers = NDArray[np.float32]


@dataclass(frozen=True)
class ValueStatistic:
    """Target or count encoding of a field: a number for each value, standardised over the training rows.

    Attributes:
        name: Name of the feature.
        field: Single-valued field whose values are encoded.
        keys: Keys of the known values, sorted.
        values: Encoding of each known value, float32 [keys].
        default: Encoding of unknown and missing values.
        mean: Mean over the training rows.
        deviation: Standard deviation over the training rows.
        counts: Rows and positives of missing values and of each known value, float64 [2, 1 + keys], to which a nightly
            run adds its rows; None if an older version fitted the encoding.
    """

    name: str
    field: str
    keys: Keys
    values: Numbers
    default: float
    mean: float
    deviation: float
    counts: NDArray[np.float64] | None = None

    def encode(self, keys: Keys) -> Numbers:
        """Return the standardised encoding of the key of each row, float32 [rows]."""
        return self.scaled(_looked_up(self.keys, keys, self.values, self.default))

    def scaled(self, numbers: Numbers) -> Numbers:
        """Standardise encodings by mean and deviation of the training rows; return float32 [rows]."""
        return ((numbers - self.mean) / self.deviation).astype(np.float32)


@dataclass(frozen=True)
class OutOfFold:
    """Target encoding of training rows, without the rows of their own fold.

    Attributes:
        statistic: Encoding over all training rows.
        place: Index of the field among the key columns.
        values: Encoding of each value without the rows of one fold, float32 [folds, keys].
        defaults: Encoding of values that are missing or occur in no other fold, float32 [folds].
    """

    statistic: ValueStatistic
    place: int
    values: Numbers
    defaults: Numbers

    def encode(self, columns: Columns) -> Numbers:
        """Return the standardised out-of-fold encoding of each row, float32 [rows]."""
        folds, found = folds_of(columns), np.empty(columns.rows, np.float32)
        for fold in range(FOLDS):
            rows = folds == fold
            of_fold = columns.keys[self.place][rows]
            found[rows] = _looked_up(self.statistic.keys, of_fold, self.values[fold], self.defaults[fold])
        return self.statistic.scaled(found)


def folds_of(columns: Columns) -> NDArray[np.int64]:
    """Return the fold of each row, int64 [rows]; rows with equal features are in one fold."""
    single = Columns(columns.numeric, columns.keys, [])  # built histories are not known in both passes
    return (row_hashes(single, _FOLD_SEED) % np.uint64(FOLDS)).astype(np.int64)


class ValueTally:
    """Rows and positives of each value of a field, by fold."""

    def __init__(self) -> None:
        self._frames: list[pl.DataFrame] = []

    def add(self, keys: Keys, folds: NDArray[np.int64], labels: NDArray[np.float32]) -> Self:
        """Count training rows by value and fold."""
        frame = pl.DataFrame({"key": keys, "fold": folds, "positives": labels.astype(np.float64)})
        self._frames.append(frame.with_columns(rows=pl.lit(1.0)).group_by("key", "fold").sum())
        if len(self._frames) > _MOST_FRAMES:
            self._frames = [pl.concat(self._frames).group_by("key", "fold").sum()]
        return self

    def by_fold(self) -> tuple[Keys, NDArray[np.float64], NDArray[np.float64]]:
        """Return sorted keys, always with the missing key 0, and their rows and positives, float64 [folds, keys]."""
        summed = pl.concat(self._frames).group_by("key", "fold").sum()
        keys = np.union1d(summed["key"].to_numpy(), np.zeros(1, np.uint64))
        place = summed["fold"].to_numpy(), np.searchsorted(keys, summed["key"].to_numpy())
        rows, positives = np.zeros((2, FOLDS, len(keys)))
        rows[place], positives[place] = summed["rows"].to_numpy(), summed["positives"].to_numpy()
        return keys, rows, positives


def fit_statistic(
    tally: ValueTally, encoding: ValueEncoding, former: ValueStatistic | None = None
) -> tuple[ValueStatistic, tuple[Numbers, Numbers] | None]:
    """Fit a target or count encoding to the training rows.

    Args:
        tally: Training rows of the field.
        encoding: Field, kind and smoothing of the encoding.
        former: Encoding of the previous nightly model: its scale is kept, and its counts are added.

    Returns:
        The encoding, and its out-of-fold `values`, float32 [folds, keys], and `defaults`, float32 [folds], as in
        `OutOfFold`. A count encoding needs no folds and has None instead of these two.
    """
    keys, rows, positives = tally.by_fold()
    if former is not None and former.counts is not None:
        # An additional last fold holds the counts of the previous model.
        every = np.union1d(keys, former.keys)
        sums = np.zeros((2, FOLDS + 1, len(every)))
        sums[:, :FOLDS, np.searchsorted(every, keys)] = rows, positives
        sums[:, FOLDS, np.searchsorted(every, np.concatenate([keys[:1], former.keys]))] = former.counts
        keys, (rows, positives) = every, sums
    count, prior, without = rows.sum(axis=0), positives.sum() / rows.sum(), None
    if encoding.kind == "count":
        values, default = np.log1p(count), 0.0
    else:
        values, default = _share(positives.sum(axis=0), count, prior, encoding.smoothing), prior
        other_rows, other_positives = (count - rows)[:FOLDS], (positives.sum(axis=0) - positives)[:FOLDS]
        priors = other_positives.sum(axis=1) / np.maximum(other_rows.sum(axis=1), 1)
        shares = _share(other_positives, other_rows, priors[:, None], encoding.smoothing)
        without = shares[:, 1:].astype(np.float32), priors.astype(np.float32)
    values[0] = default  # of missing values, whose key is 0
    mean = float(np.average(values, weights=count))
    deviation = float(np.sqrt(np.average((values - mean) ** 2, weights=count)))
    scale = (former.mean, former.deviation) if former else (mean, deviation if deviation > _CONSTANT else 1.0)
    numbers = keys[1:], values[1:].astype(np.float32), float(default)
    counts = np.stack([count, positives.sum(axis=0)])
    return ValueStatistic(encoding.name, encoding.column, *numbers, *scale, counts), without


def _share(
    positives: NDArray[np.float64], rows: NDArray[np.float64], prior: Any, smoothing: float
) -> NDArray[np.float64]:
    return (positives + smoothing * prior) / (rows + smoothing)


def _looked_up(known: Keys, keys: Keys, values: Numbers, default: float) -> Numbers:
    if not len(known):
        return np.full(len(keys), default, np.float32)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[places] == keys, values[places], np.float32(default))
