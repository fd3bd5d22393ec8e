"""A set-associative cache of rows: a row may lie in the few places of its set, so that a look is the same for all.

Beside each row stand its number and its last use or how often it was used, twelve bytes together: nothing is kept of
rows that are not in it, however many there are.
"""

from typing import Literal

import numpy as np

Policy = Literal["lru", "lfu"]
WAYS = 16
BYTES_A_SLOT = 12  # of the number and the use of a row, beside the row
_NOBODY = -1
_LARGEST_USE = np.iinfo(np.uint32).max >> 1


class RowCache:
    """Rows by their numbers.

    Args:
        slots: Rows that it holds; rounded down to whole sets.
        dim: Numbers of a row.
        policy: Whether the row that was used longest ago makes room, or the one that was used least. Uses are halved
            now and then, so that what was once frequent does not stay for ever.
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
        """Where each of some distinct rows lies, -1 where it does not; it counts as a use."""
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
        """The rows in some places, `[slots, dim]`."""
        return self._rows[slots]

    def put(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Keep rows that are not here; of more than a set has places for, some are passed over.

        Args:
            rows: Their numbers, each once.
            values: `[rows, dim]`.
        """
        if not self._sets or not len(rows):
            return
        sets = self._set_of(rows)
        order = np.argsort(sets, kind="stable")
        sets, rows = sets[order], rows[order]
        first = np.searchsorted(sets, sets)  # of the rows of the same set
        rank = np.arange(len(sets)) - first
        kept = np.flatnonzero(rank < self._tags.shape[1])
        sets, rank, order, rows = sets[kept], rank[kept], order[kept], rows[kept]
        # The place of the rank-th row is the rank-th in the order in which places of its set are given away.
        ways = np.argsort(self._uses[sets], axis=1, kind="stable")[np.arange(len(sets)), rank]
        self._tags[sets, ways] = rows
        self._uses[sets, ways] = self._clock if self._policy == "lru" else 1
        self._rows[sets * self._tags.shape[1] + ways] = values[order]

    def residents(self) -> np.ndarray:
        """The rows that it holds, ascending."""
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
        """Multiplicative hashing (Knuth): neighbours go to different sets."""
        mixed = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return ((mixed >> np.uint64(32)) % np.uint64(self._sets)).astype(np.int64)
