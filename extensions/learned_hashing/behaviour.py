"""Behaviour of categorical values: the effect of each value on the label, alone and together with other columns.

A factorisation machine (Rendle, 2010) with a small vector for each value learns the effects from training rows. The
distance between two values is the mean squared change of a row's logit when one value replaces the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WIDTH = 4
PASSES = 3
MOST_ROWS = 1_000_000
_ROWS_AT_ONCE = 512
_RATE = 0.1
_FIRST_SQUARES = 1.0  # initial Adagrad accumulator, which keeps the step of a value seen once small
_FIRST_DEVIATION = 0.05

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Occurrences:
    """Ids of the categorical values of a batch of rows.

    Attributes:
        ids: int32 [values], row after row; the columns have disjoint ranges of ids.
        shares: float32 [values], 1 / number of values in the same row and column.
        starts: int64 [rows + 1], index of the first value of each row.
        labels: float32 [rows].
    """

    ids: NDArray[np.int32]
    shares: Floats
    starts: NDArray[np.int64]
    labels: Floats


def learn(rows: Occurrences, ids: int) -> Floats:
    """Train a factorisation machine with Adagrad; the same rows give the same bytes.

    Args:
        rows: Training rows, in the order of training.
        ids: Number of ids of all columns.

    Returns:
        float32 [ids, WIDTH + 1]: the vector of an id, whose dot products with vectors of other columns add to the
            logit, and its weight, the linear term of the logit.
    """
    random = np.random.default_rng(0)
    learned = np.concatenate(
        [random.normal(0, _FIRST_DEVIATION, (ids, WIDTH)), np.zeros((ids, 1))], axis=1, dtype=np.float32
    )
    squares = np.full((ids, 2), _FIRST_SQUARES, np.float32)
    rate = float(rows.labels.mean())
    base = np.float32(np.log(rate / (1 - rate)))
    for _ in range(PASSES):
        for batch in _batches(rows):
            _step(learned, squares, base, batch)
    return learned


@dataclass(frozen=True)
class Behaviour:
    """Behaviour of the values of one column, shrunk by the uncertainty of rare values.

    Attributes:
        points: float64 `[values, WIDTH + 1]`; squared distances are mean squared changes of the logit.
        doubt: Count of a value at which its learned effect is shrunk by half; infinite if the differences between the
            values do not exceed sampling noise.
    """

    points: NDArray[np.float64]
    doubt: float


def behaviour_of(machine: Floats, rows: Occurrences, first: int, counts: NDArray[np.int64]) -> Behaviour:
    """Return the behaviour of the values of one column, shrunk towards zero by its sampling noise.

    The learned logit effect of a value with count n has a sampling variance of about 1 / (n p (1 - p)), with p the
    share of clicks. The remaining variance between values, weighted by n, is the real variance. Each learned effect is
    multiplied by the share of the real variance in its total variance (Efron and Morris, JASA 1973).

    Args:
        machine: Trained factorisation machine, see `learn`.
        rows: Training rows of the machine.
        first: Id of the column's first value.
        counts: int64 [values], count of each value of the column in all training rows, not only in `rows`.
    """
    moments = np.zeros((WIDTH + 1, WIDTH + 1))
    for batch in _batches(rows):
        scaled = machine[batch.ids, :WIDTH] * batch.shares[:, None]
        own = (batch.ids >= first) & (batch.ids < first + len(counts))
        scaled[own] = 0
        met = np.concatenate([_sums(scaled, batch), np.ones((len(batch.labels), 1))], axis=1, dtype=np.float64)
        moments += met.T @ met
    values, directions = np.linalg.eigh(moments / len(rows.labels))
    column = slice(first, first + len(counts))
    learned = machine[column].astype(np.float64)
    inside = (rows.ids >= first) & (rows.ids < first + len(counts))
    seen = np.bincount(rows.ids[inside] - first, minlength=len(counts))
    total = max(1, int(seen.sum()))
    points = (learned - seen @ learned / total) @ (directions * np.sqrt(np.maximum(values, 0)))
    rate = float(rows.labels.mean())
    once = 1 / (rate * (1 - rate))  # sampling variance of the logit at a count of 1
    real = (seen @ (points**2).sum(1) - once * np.count_nonzero(seen)) / total
    doubt = once / real if real > 0 else np.inf
    return Behaviour(points * (seen / (seen + doubt))[:, None], float(doubt * counts.sum() / total))


def joined(parts: Sequence[Occurrences]) -> Occurrences:
    """Concatenate batches of rows."""
    ends = np.cumsum([0, *(len(part.ids) for part in parts)])
    return Occurrences(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.shares for part in parts]),
        np.concatenate([[0], *(part.starts[1:] + end for part, end in zip(parts, ends, strict=False))]),
        np.concatenate([part.labels for part in parts]),
    )


def _batches(rows: Occurrences) -> Iterator[Occurrences]:
    for first in range(0, len(rows.labels), _ROWS_AT_ONCE):
        starts = rows.starts[first : first + _ROWS_AT_ONCE + 1]
        values = slice(starts[0], starts[-1])
        labels = rows.labels[first : first + _ROWS_AT_ONCE]
        yield Occurrences(rows.ids[values], rows.shares[values], starts - starts[0], labels)


def _sums(values: Floats, batch: Occurrences) -> Floats:
    """Return the sum over the values of each row; every row must have at least one value."""
    return np.add.reduceat(values, batch.starts[:-1], axis=0)


def _step(learned: Floats, squares: Floats, base: np.float32, batch: Occurrences) -> None:
    """Make an Adagrad step in place, with one accumulator for the vector and one for the weight of each id."""
    scaled = learned[batch.ids] * batch.shares[:, None]
    vectors = scaled[:, :WIDTH]
    sums = _sums(scaled, batch)
    logits = base + sums[:, WIDTH] + ((sums[:, :WIDTH] ** 2).sum(1) - _sums((vectors**2).sum(1), batch)) / 2
    errors = 1 / (1 + np.exp(-logits)) - batch.labels
    lengths = np.diff(batch.starts)
    # d logit / d vector: the sum of the vectors of the other values in the row.
    slopes = np.repeat(sums, lengths, axis=0)
    slopes[:, :WIDTH] -= vectors
    slopes[:, WIDTH] = 1
    slopes *= (np.repeat(errors, lengths) * batch.shares)[:, None]
    order = np.argsort(batch.ids, kind="stable")
    ids, starts = np.unique(batch.ids[order], return_index=True)
    gradients = np.add.reduceat(slopes[order], starts, axis=0)
    squares[ids, 0] += (gradients[:, :WIDTH] ** 2).mean(1)
    squares[ids, 1] += gradients[:, WIDTH] ** 2
    roots = np.sqrt(squares[ids])
    learned[ids, :WIDTH] -= _RATE * gradients[:, :WIDTH] / roots[:, :1]
    learned[ids, WIDTH] -= _RATE * gradients[:, WIDTH] / roots[:, 1]
