"""How the values of the columns behave: what each does to the label, alone and with the values of other columns.

A factorisation machine (Rendle, 2010) with a few numbers for each value learns it from training rows. Two values are
apart by the square of what the logit of a row changes when one takes the place of the other, in the mean over rows.
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
_FIRST_SQUARES = 1.0  # what Adagrad begins with, so that a value seen once moves little
_FIRST_DEVIATION = 0.05

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Occurrences:
    """The values of some rows.

    Attributes:
        ids: int32 [values], row after row, of all columns in one range of ids.
        shares: float32 [values], 1 over the number of values in its row and column.
        starts: int64 [rows + 1], where the values of each row begin.
        labels: float32 [rows].
    """

    ids: NDArray[np.int32]
    shares: Floats
    starts: NDArray[np.int64]
    labels: Floats


@dataclass(frozen=True)
class Machine:
    """What was learned of each id of all columns.

    Attributes:
        weights: float32 [ids], what it adds to the logit.
        vectors: float32 [ids, WIDTH], whose dot products with those of the other columns add to the logit too.
    """

    weights: Floats
    vectors: Floats


def learn(rows: Occurrences, ids: int) -> Machine:
    """Learn a factorisation machine; the same rows give the same bytes.

    Args:
        rows: Training rows, in the order in which they are taken.
        ids: Number of ids of all columns.
    """
    random = np.random.default_rng(0)
    # The weight of an id stands behind its vector.
    learned = np.concatenate(
        [random.normal(0, _FIRST_DEVIATION, (ids, WIDTH)), np.zeros((ids, 1))], axis=1, dtype=np.float32
    )
    squares = np.full((ids, 2), _FIRST_SQUARES, np.float32)
    rate = float(rows.labels.mean())
    base = np.float32(np.log(rate / (1 - rate)))
    for _ in range(PASSES):
        for batch in _batches(rows):
            _step(learned, squares, base, batch)
    return Machine(learned[:, WIDTH], learned[:, :WIDTH])


@dataclass(frozen=True)
class Behaviour:
    """How the values of a column behave.

    Attributes:
        points: float64 `[values, numbers]`; squares of distances are what swapping two changes in the logit.
        doubt: How often a value has to be seen until half of what was learned of it is believed; infinite where the
            values differ by no more than chance makes them.
    """

    points: NDArray[np.float64]
    doubt: float


def behaviour_of(machine: Machine, rows: Occurrences, first: int, counts: NDArray[np.int64]) -> Behaviour:
    """How the values of one column behave, as far as that can be told from chance.

    What is learned of a value that was seen n times is off by a variance of about 1 / (n p (1 - p)) in the logit, with
    p the share of clicks. The variance that is left between the values, weighted by n, is real, and of what was learned
    of each value the share of the real variance in its whole is believed (Efron and Morris, JASA 1973).

    Args:
        machine: What was learned.
        rows: The rows it was learned from.
        first: Id of the column's first value.
        counts: How often each value of the column was seen, in these rows and all others.
    """
    moments = np.zeros((WIDTH + 1, WIDTH + 1))
    for batch in _batches(rows):
        scaled = machine.vectors[batch.ids] * batch.shares[:, None]
        own = (batch.ids >= first) & (batch.ids < first + len(counts))
        scaled[own] = 0
        met = np.concatenate([_sums(scaled, batch), np.ones((len(batch.labels), 1))], axis=1, dtype=np.float64)
        moments += met.T @ met
    values, directions = np.linalg.eigh(moments / len(rows.labels))
    column = slice(first, first + len(counts))
    learned = np.concatenate([machine.vectors[column], machine.weights[column, None]], axis=1, dtype=np.float64)
    inside = (rows.ids >= first) & (rows.ids < first + len(counts))
    seen = np.bincount(rows.ids[inside] - first, minlength=len(counts))
    total = max(1, int(seen.sum()))
    points = (learned - seen @ learned / total) @ (directions * np.sqrt(np.maximum(values, 0)))
    rate = float(rows.labels.mean())
    once = 1 / (rate * (1 - rate))  # variance of what one sight of a value tells
    real = (seen @ (points**2).sum(1) - once * np.count_nonzero(seen)) / total
    doubt = once / real if real > 0 else np.inf
    return Behaviour(points * (seen / (seen + doubt))[:, None], float(doubt * counts.sum() / total))


def joined(parts: Sequence[Occurrences]) -> Occurrences:
    """The rows of all parts, one after the other."""
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
    """Sums over the values of each row, each of which has some."""
    return np.add.reduceat(values, batch.starts[:-1], axis=0)


def _step(learned: Floats, squares: Floats, base: np.float32, batch: Occurrences) -> None:
    """A step of Adagrad, with one accumulator for the vector of an id and one for its weight."""
    scaled = learned[batch.ids] * batch.shares[:, None]
    vectors = scaled[:, :WIDTH]
    sums = _sums(scaled, batch)
    logits = base + sums[:, WIDTH] + ((sums[:, :WIDTH] ** 2).sum(1) - _sums((vectors**2).sum(1), batch)) / 2
    errors = 1 / (1 + np.exp(-logits)) - batch.labels
    lengths = np.diff(batch.starts)
    # d logit / d vector: what the other values of the row add up to.
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
