"""A small sample of the distinct values of a field: how many there are, and which of them other days have too."""

import numpy as np
from numpy.typing import NDArray

SIZE = 1_024
_HASHES = 2.0**64


class KeySketch:
    """The values with the smallest hashes, and how often each of them was seen.

    With k values kept, of which the largest hash is h, there are about (k - 1) * 2**64 / h distinct values: the KMV
    estimator (Bar-Yossef et al., "Counting distinct elements in a data stream", RANDOM 2002; the unbiased form is of
    Beyer et al., SIGMOD 2007). Its relative error is near 1 / sqrt(k - 2), 3 % here. Fewer values than k are counted
    exactly. Hashes are kept in place of values, for they are compared only.

    Attributes:
        values: How many were added that are no gap.
        keys: uint64, the hashes, ascending.
        counts: int64, how often each was seen.
        complete: Whether every value that was seen is among them.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self.values = 0
        self.keys: NDArray[np.uint64] = np.empty(0, np.uint64)
        self.counts: NDArray[np.int64] = np.empty(0, np.int64)
        self.complete = True

    def add(self, keys: NDArray[np.uint64]) -> None:
        """Add the keys of some rows; key 0 is a gap."""
        keys = keys[keys != 0]
        if not len(keys):
            return
        self.values += len(keys)
        hashed, counts = np.unique(_mix(keys), return_counts=True)
        merged, places = np.unique(np.concatenate([self.keys, hashed]), return_inverse=True)
        # A value that was dropped before has a hash above all that are kept, so that it can never come back.
        totals = np.bincount(places, weights=np.concatenate([self.counts, counts])).astype(np.int64)
        self.complete = self.complete and len(merged) <= self._size
        self.keys, self.counts = merged[: self._size], totals[: self._size]

    @property
    def distinct(self) -> float:
        """Estimated number of distinct values."""
        if self.complete:
            return float(len(self.keys))
        return (self._size - 1) * _HASHES / float(self.keys[-1])


def _mix(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit values: the finaliser of MurmurHash3 (Appleby), which maps them one to one."""
    keys = (keys ^ (keys >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    keys = (keys ^ (keys >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return keys ^ (keys >> np.uint64(33))
