"""Bucket ids of numbers, with given edges or with quantiles of the training split.

A number is passed as a key like every other value, so a bucketised column is counted, spilled and encoded like other
categorical columns. Keys have the order of the numbers. For counting, the last bits of the mantissa are dropped. The
counts are then a histogram of bounded size (as HdrHistogram's), independent of the order of rows and of the workers.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import MISSING_KEY

# Dropped bits of a float32 in counts: the relative resolution is 2**-17, and smaller integers are exact.
DROPPED_BITS = 7
_SIGN = np.uint32(1 << 31)


def number_keys(values: NDArray[np.floating]) -> NDArray[np.uint64]:
    """Return the key of each number, uint64 [rows], in the order of the numbers; `MISSING_KEY` for NaN.

    Args:
        values: Numbers [rows].
    """
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32) + np.float32(0)  # -0 becomes 0
    bits = numbers.view(np.uint32)
    # Bits of floats as ordered integers: negative floats are inverted and below all positive ones.
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return np.where(np.isnan(numbers), np.uint64(MISSING_KEY), ordered.astype(np.uint64) + np.uint64(1))


def numbers_of_keys(keys: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Return the number of each key, float32 [rows], the inverse of `number_keys`; NaN for `MISSING_KEY`."""
    ordered = (np.maximum(keys, np.uint64(1)) - np.uint64(1)).astype(np.uint32)
    numbers = np.where(ordered & _SIGN, ordered ^ _SIGN, ~ordered).astype(np.uint32).view(np.float32)
    return np.where(keys == MISSING_KEY, np.float32(np.nan), numbers)


def coarse(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the smallest key in the histogram cell of each key, uint64 [rows]; `MISSING_KEY` is unchanged."""
    bits = np.uint64(DROPPED_BITS)
    cells = ((np.maximum(keys, np.uint64(1)) - np.uint64(1)) >> bits << bits) + np.uint64(1)
    return np.where(keys == MISSING_KEY, keys, cells)


def quantile_edges(keys: NDArray[np.uint64], counts: NDArray[np.int64], buckets: int) -> tuple[float, ...]:
    """Return the edges of buckets with nearly equal counts; fewer buckets if a frequent value would fill several.

    Args:
        keys: Distinct coarse keys without `MISSING_KEY`, in any order.
        counts: Count of each key.
        buckets: Largest number of buckets.

    Returns:
        Edges in ascending order. Each edge is the smallest number of the cell after the cell with the quantile, so
        that a frequent value does not share its bucket with larger values.
    """
    order = np.argsort(keys)
    keys, below = keys[order], np.cumsum(counts[order])
    if len(keys) < 2:
        return ()
    wanted = np.arange(1, buckets) * (below[-1] / buckets)
    cells = np.unique(np.searchsorted(below, wanted, side="left")) + 1
    return tuple(numbers_of_keys(keys[cells[cells < len(keys)]]).tolist())


class BucketIds:
    """Ids by bucket: 1 below the first edge, increased by 1 at each edge; 0 for a missing number."""

    def __init__(self, edges: Sequence[float]) -> None:
        """Set the bounds of the buckets, in ascending order."""
        self.edges = tuple(float(edge) for edge in edges)
        self._first_keys = number_keys(np.array(self.edges, np.float32))

    @property
    def rows(self) -> int:
        """Number of ids, which is the number of rows of the embedding table."""
        return len(self.edges) + 2

    def ids(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the id of each key of `number_keys`, int32 [rows]."""
        found = np.searchsorted(self._first_keys, keys, side="right").astype(np.int32) + np.int32(1)
        return np.where(keys == MISSING_KEY, np.int32(0), found)

    def names(self) -> dict[int, str]:
        """Return the range of each bucket as text by id: `below 18`, `18 to 25`, `from 65`."""
        texts = [f"{edge:g}" for edge in self.edges]
        if not texts:
            return {1: "any number"}
        between = (f"{low} to {high}" for low, high in pairwise(texts))
        return dict(enumerate((f"below {texts[0]}", *between, f"from {texts[-1]}"), 1))
