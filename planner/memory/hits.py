"""How often a cache of rows has what a batch asks for, before it runs.

By Che's approximation (Che, Tung and Wang, IEEE JSAC 2002), batch by batch: a row stays for some number of batches
after its last use. A row that a batch asks for with the chance q is then in the cache with 1 - (1 - q)^that. It takes
every batch to be drawn alike.

Where the row goes that was used longest ago, the number is the same for all rows, and the one for which the cache is
just full. The cache of a training lets rows of the lowest level go first (`shunter.models.embeddings.row_use`): those
of high levels stay for good, those of low ones as long as their batch is in work, and those of the one level between,
for which there is room in part, for the number for which the cache is just full.

That is how a cache goes on for ever. In a training of a few passes it counts besides that no row is there when it is
asked for first: what a pass asks for at all it asks for first once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shunter.models.embeddings.row_use import use_levels
from shunter.planner.memory.demand import TableDemand

_STEPS = 200
_FOR_GOOD = 60.0  # a logarithm: a seldom row stays for a long time in a large cache


@dataclass(frozen=True)
class Hits:
    """Requests and misses of a cache.

    Attributes:
        requests: Different rows of each table that a batch asks for.
        misses: Those of them that are not in the cache.
    """

    requests: np.ndarray
    misses: np.ndarray

    @property
    def miss_rate(self) -> float:
        """Share of the different rows of a batch that are not in the cache."""
        return float(self.misses.sum() / self.requests.sum()) if self.requests.sum() else 0.0


@dataclass(frozen=True)
class Passes:
    """Length of a training.

    Attributes:
        samples: Of a pass over the training part.
        count: Passes.
    """

    samples: int
    count: float


@dataclass(frozen=True)
class _Rows:
    """Rows that are asked for alike, `[groups]` each.

    Attributes:
        table: Whose they are.
        count: How many.
        row_bytes: Bytes of one.
        chance: That a batch asks for one of them.
        level: What the cache of a training goes by.
        uses: How often a sample asks for one of them.
    """

    table: np.ndarray
    count: np.ndarray
    row_bytes: np.ndarray
    chance: np.ndarray
    level: np.ndarray
    uses: np.ndarray

    @classmethod
    def of(cls, tables: Sequence[TableDemand], samples: int) -> "_Rows":
        """The segments of all tables."""
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
        """Bytes of those that were asked for within so many batches, of each group or all."""
        return float((self.count * self.row_bytes) @ -np.expm1(batches * np.log1p(-self.chance)))

    def misses(self, batches: np.ndarray | float, tables: int) -> np.ndarray:
        """Rows of each table that a batch asks for and none of so many before it did."""
        missed = self.count * self.chance * np.exp(batches * np.log1p(-self.chance))
        return np.bincount(self.table, weights=missed, minlength=tables)

    def first_touches(self, batches: np.ndarray | float, tables: int, samples: int) -> np.ndarray:
        """Rows of each table that a pass of so many samples asks for, and that one of so many batches did before."""
        there = self.count * np.minimum(self.uses * samples, 1) * -np.expm1(batches * np.log1p(-self.chance))
        return np.bincount(self.table, weights=there, minlength=tables)


def predict_hits(
    tables: Sequence[TableDemand],
    samples: int,
    cache_bytes: float,
    window_batches: int = 1,
    passes: Passes | None = None,
) -> Hits:
    """Predict the hits of the cache of a training, which tables share.

    Args:
        tables: The tables behind it.
        samples: Samples of a batch.
        cache_bytes: Memory for their rows.
        window_batches: Batches in work, whose rows stay; where the cache has no room for so many, fewer are.
        passes: How long the training is, whose misses are those of a batch on average; None is for ever.
    """
    rows = _Rows.of(tables, samples)

    def stays(room: float) -> np.ndarray:
        window = next(one for one in range(window_batches, 0, -1) if rows.held_bytes(one) <= room)

        def where(level: int, batches: float) -> np.ndarray:
            """Batches for which each group stays, if it is so many for those of a level."""
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
    """Predict the hits of a cache of the rows that were used last, such as that of a server; see `predict_hits`."""
    rows = _Rows.of(tables, samples)
    return _hits(tables, rows, cache_bytes, lambda room: _just_full(rows.held_bytes, room))


def _hits(
    tables: Sequence[TableDemand], rows: _Rows, cache_bytes: float, stays: Callable[[float], np.ndarray | float]
) -> Hits:
    """Of rows that stay for so many batches; all or none where the cache holds everything, or not even a batch."""
    requests = rows.misses(0.0, len(tables))
    if cache_bytes >= sum(table.total_bytes for table in tables):
        return Hits(requests, np.zeros(len(tables)))
    if cache_bytes <= rows.held_bytes(1):  # nothing of a batch is there when it is asked for again
        return Hits(requests, requests.copy())
    return Hits(requests, rows.misses(stays(cache_bytes), len(tables)))


def _just_full(held_bytes: Callable[[float], float], cache_bytes: float, least: float = 1.0) -> float:
    """The batches for which rows stay where the cache is just full, at least so many."""
    low, high = float(np.log(least)), _FOR_GOOD
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if held_bytes(float(np.exp(middle))) < cache_bytes else (low, middle)
    return float(np.exp(low))
