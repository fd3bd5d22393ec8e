"""Sums of whole lists of ids that came lately: one of them spares as many rows as the list has ids (SDM, 2.3 C).

A list is known by its ids in their order, compared one by one, so that the sum is the one that adding them up would
give, bit by bit.
"""

from collections import OrderedDict

import numpy as np

SHORTEST = 4  # ids of a list that is worth keeping
OVERHEAD_BYTES = 300  # of an entry of Python's dictionary with a key and an array


class PooledSums:
    """The lists used last.

    Args:
        most_bytes: Memory that it may take.

    Attributes:
        hits: Lists that were found.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._sums: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self.hits = 0

    def find(self, rows: np.ndarray) -> np.ndarray | None:
        """The sum of these rows; None where it is not known."""
        key = rows.tobytes()
        found = self._sums.get(key)
        if found is not None:
            self._sums.move_to_end(key)
            self.hits += 1
        return found

    def put(self, rows: np.ndarray, total: np.ndarray) -> None:
        """Keep the sum of these rows; those that were used longest ago make room."""
        key = rows.tobytes()
        size = len(key) + total.nbytes + OVERHEAD_BYTES
        if key in self._sums or size > self._most_bytes:
            return
        self._sums[key] = total.copy()
        self._bytes += size
        while self._bytes > self._most_bytes:
            old, value = self._sums.popitem(last=False)
            self._bytes -= len(old) + value.nbytes + OVERHEAD_BYTES
