"""Set-associative row cache: a row may only be in the few slots of its set, so that every lookup costs the same.

The number of each row and its last use or its number of uses are stored next to the row, twelve bytes together. Nothing
is stored for rows outside the cache.
"""

from typing import Literal

import numpy as np

Policy = Literal["lru", "lfu"]
WAYS = 16
BYTES_A_SLOT = 12  # number and use of a row, in addition to the row
_NOBODY = -1
_LARGEST_USE = np.iinfo(np.uint32).max >> 1


class RowCache:
    """Cache of rows by their numbers.

    Args:
        slots: Capacity in rows; rounded down to whole sets.
        dim: Width of a row.
        policy: Whether the least recently used row is evicted, or the least frequently used. Counts of uses are
            halved from time to time, so that formerly frequent rows do not stay for ever.
    """

    def __init__(self, slots: int, dim: int, policy: Policy) -> None:
        ways = min(WAYS, slots)
        self._sets = slots // ways if ways else 0
        self.slots = self._sets * ways
        self._policy: Policy = policy
        self._tags = np.full((self._sets, ways), _NOBODY, np.int64)
        self._uses = np.zeros((self._sets, ways), np.uint32)
        self._rows = np.zeros((self.slots, dim), np.float32)
        self._clock = 1
        self._noted = 0

    def find(self, rows: np.ndarray) -> np.ndarray:
        """Return the slot of each of these distinct row numbers, -1 if not cached; each found row counts as used."""
        if not self._sets:
            return np.full(len(rows), _NOBODY, np.int64)
        sets = self._set_of(rows)
        is_here = self._tags[sets] == rows[:, np.newaxis]
        ways = is_here.argmax(1)
        found = np.flatnonzero(is_here[np.arange(len(rows)), ways])
        self._note(sets[found], ways[found])
        slots = np.full(len(rows), _NOBODY, np.int64)
        slots[found] = sets[found] * self._tags.shape[1] + ways[found]
        return slots

    def take(self, slots: np.ndarray) -> np.ndarray:
        """Return the rows in these slots, `[slots, dim]`."""
        return self._rows[slots]

    def put(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Insert rows that are not in the cache; rows beyond the slots of a set are skipped.

        Args:
            rows: Distinct row numbers.
            values: Rows, `[rows, dim]`.
        """
        if not self._sets or not len(rows):
            return
        sets = self._set_of(rows)
        order = np.argsort(sets, kind="stable")
        sets, rows = sets[order], rows[order]
        first = np.searchsorted(sets, sets)  # first index of each row's set
        rank = np.arange(len(sets)) - first
        kept = np.flatnonzero(rank < self._tags.shape[1])
        sets, rank, order, rows = sets[kept], rank[kept], order[kept], rows[kept]
        # The rank-th row of a set gets the rank-th slot in the eviction order of the set.
        ways = np.argsort(self._uses[sets], axis=1, kind="stable")[np.arange(len(sets)), rank]
        self._tags[sets, ways] = rows
        self._uses[sets, ways] = self._clock if self._policy == "lru" else 1
        self._rows[sets * self._tags.shape[1] + ways] = values[order]

    def residents(self) -> np.ndarray:
        """Return the numbers of all rows in the cache, ascending."""
        return np.sort(self._tags[self._tags != _NOBODY]).astype(np.int64)

    def _note(self, sets: np.ndarray, ways: np.ndarray) -> None:
        self._clock += 1
        if self._policy == "lru":
            self._uses[sets, ways] = self._clock
            if self._clock >= _LARGEST_USE:
                self._uses >>= 1
                self._clock >>= 1
            return
        self._uses[sets, ways] += 1
        self._noted += len(sets)
        if self._noted >= 8 * self.slots:
            self._uses >>= 1
            self._noted = 0

    def _set_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the set of each row by multiplicative hashing (Knuth), which spreads adjacent rows."""
        mixed = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return ((mixed >> np.uint64(32)) % np.uint64(self._sets)).astype(np.int64)
