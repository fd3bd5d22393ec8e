"""Prediction of the hits of a row cache, before training.

By Che's approximation (Che, Tung and Wang, IEEE JSAC 2002), batch by batch: a row stays for some number of batches
after its last use. A row that a batch looks up with probability q is then in the cache with probability 1 - (1 - q)^n
for n batches. All batches are assumed to be drawn from the same distribution.

If the least recently used row is evicted, n is the same for all rows: the number at which the cache is just full. The
cache of a training run evicts rows of the lowest level first (`shunter.extensions.tiers.row_use`). Rows of high levels
then stay forever, and rows of low levels only while their batch is in progress. Rows of one level between stay for n
batches, the number at which the cache is just full.

This describes the steady state. A training run of a few passes also has compulsory misses: each row misses at its first
lookup.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shunter.extensions.tiers.memory.demand import TableDemand
from shunter.extensions.tiers.row_use import use_levels

_STEPS = 200
_FOR_GOOD = 60.0  # a logarithm: a seldom row stays for a long time in a large cache


@dataclass(frozen=True)
class Hits:
    """Requests and misses of a cache.

    Attributes:
        requests: Distinct rows of each table in a batch.
        misses: Requested rows that are not in the cache.
    """

    requests: np.ndarray
    misses: np.ndarray

    @property
    def miss_rate(self) -> float:
        """Return the share of the distinct rows of a batch that are not in the cache."""
        return float(self.misses.sum() / self.requests.sum()) if self.requests.sum() else 0.0


@dataclass(frozen=True)
class Passes:
    """Length of a training run.

    Attributes:
        samples: Number of samples in a pass over the training part.
        count: Passes.
    """

    samples: int
    count: float


@dataclass(frozen=True)
class _Rows:
    """Groups of rows with equal lookup frequency, `[groups]` each."""

    table: np.ndarray
    count: np.ndarray  # number of rows
    row_bytes: np.ndarray  # of one row
    chance: np.ndarray  # probability that a batch looks up a given row of the group
    level: np.ndarray  # by which the cache of a training run evicts
    uses: np.ndarray  # mean number of lookups of one row per sample

    @classmethod
    def of(cls, tables: Sequence[TableDemand], samples: int) -> "_Rows":
        """Return the segments of all tables as groups of rows."""
        found = [(place, table, *table.chances(samples)) for place, table in enumerate(tables)]
        return cls(
            table=np.concatenate([np.full(len(count), place) for place, _, count, _ in found]),
            count=np.concatenate([count for _, _, count, _ in found]),
            row_bytes=np.concatenate([np.full(len(count), table.row_bytes) for _, table, count, _ in found]),
            chance=np.concatenate([chance for _, _, _, chance in found]),
            level=np.concatenate([use_levels(table.uses()) for table in tables]),
            uses=np.concatenate([table.uses() for table in tables]),
        )

    def held_bytes(self, batches: np.ndarray | float) -> float:
        """Return the bytes of the distinct rows that `batches` batches look up, a number or `[groups]`."""
        return float((self.count * self.row_bytes) @ -np.expm1(batches * np.log1p(-self.chance)))

    def misses(self, batches: np.ndarray | float, tables: int) -> np.ndarray:
        """Return for each table the mean number of a batch's rows that the last `batches` batches did not look up."""
        missed = self.count * self.chance * np.exp(batches * np.log1p(-self.chance))
        return np.bincount(self.table, weights=missed, minlength=tables)

    def first_touches(self, batches: np.ndarray | float, tables: int, samples: int) -> np.ndarray:
        """Return for each table the rows whose first lookup in `samples` samples is a hit in the steady state."""
        there = self.count * np.minimum(self.uses * samples, 1) * -np.expm1(batches * np.log1p(-self.chance))
        return np.bincount(self.table, weights=there, minlength=tables)


def predict_hits(
    tables: Sequence[TableDemand],
    samples: int,
    cache_bytes: float,
    window_batches: int = 1,
    passes: Passes | None = None,
) -> Hits:
    """Predict the hits of the cache of a training run, which all tables share.

    Args:
        tables: Tables whose rows share the cache.
        samples: Samples of a batch.
        cache_bytes: Memory of the cache for rows.
        window_batches: Batches in progress, whose rows stay; fewer if the cache has no room for them.
        passes: Length of the training; misses are the mean per batch. None is an endless training.
    """
    rows = _Rows.of(tables, samples)

    def stays(room: float) -> np.ndarray:
        window = next(one for one in range(window_batches, 0, -1) if rows.held_bytes(one) <= room)

        def where(level: int, batches: float) -> np.ndarray:
            """Return the batches for which each group stays cached, if groups of `level` stay for `batches`.

            Higher levels stay forever, lower levels only for the window.
            """
            return np.where(rows.level > level, np.exp(_FOR_GOOD), np.where(rows.level < level, window, batches))

        # The lowest level whose rows have room, at least in part, beside all of those above.
        level = next(one for one in np.unique(rows.level).tolist() if rows.held_bytes(where(one, window)) <= room)
        return where(level, _just_full(lambda batches: rows.held_bytes(where(level, batches)), room, window))

    found = _hits(tables, rows, cache_bytes, stays)
    if passes is None:
        return found
    # Where nothing ever leaves, or nothing stays, it is as if all rows did so.
    is_whole = cache_bytes >= sum(table.total_bytes for table in tables)
    batches = np.exp(_FOR_GOOD) if is_whole else 0.0 if cache_bytes <= rows.held_bytes(1) else stays(cache_bytes)
    first = rows.first_touches(batches, len(tables), passes.samples)
    return Hits(found.requests, found.misses + first / max(passes.count * passes.samples / samples, 1))


def predict_recent_hits(tables: Sequence[TableDemand], samples: int, cache_bytes: float) -> Hits:
    """Predict the hits of a least-recently-used (LRU) cache of a scoring server, in the steady state."""
    rows = _Rows.of(tables, samples)
    return _hits(tables, rows, cache_bytes, lambda room: _just_full(rows.held_bytes, room))


def _hits(
    tables: Sequence[TableDemand], rows: _Rows, cache_bytes: float, stays: Callable[[float], np.ndarray | float]
) -> Hits:
    """Return the hits if rows stay cached for `stays` batches; all hit if all rows fit, none if no batch fits."""
    requests = rows.misses(0.0, len(tables))
    if cache_bytes >= sum(table.total_bytes for table in tables):
        return Hits(requests, np.zeros(len(tables)))
    if cache_bytes <= rows.held_bytes(1):  # no row of a batch is cached at its next lookup
        return Hits(requests, requests.copy())
    return Hits(requests, rows.misses(stays(cache_bytes), len(tables)))


def _just_full(held_bytes: Callable[[float], float], cache_bytes: float, least: float = 1.0) -> float:
    """Return the number of batches whose distinct rows just fill the cache, at least `least`."""
    low, high = float(np.log(least)), _FOR_GOOD
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if held_bytes(float(np.exp(middle))) < cache_bytes else (low, middle)
    return float(np.exp(low))
