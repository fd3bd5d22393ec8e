"""How often a cache of rows that were used last has what a batch asks for, before it runs.

Che's approximation (Che, Tung and Wang, IEEE JSAC 2002), batch by batch: a row stays for some number of batches after
its last use, the same for all, which is the one for which the cache is just full. A row that a batch asks for with the
chance q is then in the cache with 1 - (1 - q)^that. It takes every batch to be drawn alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.memory.demand import TableDemand

_STEPS = 200


@dataclass(frozen=True)
class Hits:
    """What a cache comes to.

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


def predict_hits(tables: Sequence[TableDemand], samples: int, cache_bytes: float) -> Hits:
    """Predict the hits of a cache that tables share.

    Args:
        tables: The tables behind it.
        samples: Samples of a batch.
        cache_bytes: Memory for their rows.
    """
    found = [table.chances(samples) for table in tables]
    requests = np.array([rows @ chance for rows, chance in found])
    if cache_bytes >= sum(table.total_bytes for table in tables):
        return Hits(requests, np.zeros(len(tables)))

    def held_bytes(batches: float) -> float:
        pairs = zip(tables, found, strict=True)
        return sum(table.row_bytes * float(rows @ -np.expm1(batches * np.log1p(-q))) for table, (rows, q) in pairs)

    if cache_bytes <= held_bytes(1):  # no room for a batch: nothing of it is there when it is asked for again
        return Hits(requests, requests.copy())
    low, high = 0.0, 60.0  # logarithms, for a seldom row stays for a long time in a large cache
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if held_bytes(float(np.exp(middle))) < cache_bytes else (low, middle)
    batches = float(np.exp(low))
    misses = np.array([rows @ (q * np.exp(batches * np.log1p(-q))) for rows, q in found])
    return Hits(requests, misses)
