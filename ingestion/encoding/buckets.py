"""Numbers as ids: a column is cut into buckets, by edges that are given or by quantiles of the training part.

A number travels as a key, like every other value, so a bucketised column is counted, kept and encoded as they are. Its
keys have the order of the numbers, and drop the last bits of the mantissa: a count over them is a histogram of bounded
size (as HdrHistogram's) that does not depend on the order of the rows or on who has counted which.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import MISSING_KEY

# Bits of a float32 that are not counted: numbers are told apart to one part in 2**17, whole ones below that exactly.
DROPPED_BITS = 7
_SIGN = np.uint32(1 << 31)


def number_keys(values: NDArray[np.floating]) -> NDArray[np.uint64]:
    """The key of each number, uint64 [rows]: ascending with it; `MISSING_KEY` for NaN.

    Args:
        values: [rows].
    """
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32) + np.float32(0)  # -0 becomes 0
    bits = numbers.view(np.uint32)
    # The order of floats as whole numbers: negative ones are reversed, and lie below the others.
    ordered = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return np.where(np.isnan(numbers), np.uint64(MISSING_KEY), ordered.astype(np.uint64) + np.uint64(1))


def numbers_of_keys(keys: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Inverse of `number_keys`, float32 [rows]; NaN for `MISSING_KEY`."""
    ordered = (np.maximum(keys, np.uint64(1)) - np.uint64(1)).astype(np.uint32)
    numbers = np.where(ordered & _SIGN, ordered ^ _SIGN, ~ordered).astype(np.uint32).view(np.float32)
    return np.where(keys == MISSING_KEY, np.float32(np.nan), numbers)


def coarse(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Of each key the least one in its cell of the histogram; the missing one stays what it is."""
    bits = np.uint64(DROPPED_BITS)
    cells = ((np.maximum(keys, np.uint64(1)) - np.uint64(1)) >> bits << bits) + np.uint64(1)
    return np.where(keys == MISSING_KEY, keys, cells)


def quantile_edges(keys: NDArray[np.uint64], counts: NDArray[np.int64], buckets: int) -> tuple[float, ...]:
    """Edges between buckets of nearly equal counts; fewer where a value is so frequent that it fills several.

    Args:
        keys: Distinct coarse keys, none missing, in any order.
        counts: How often each was seen.
        buckets: Number of buckets at most.

    Returns:
        Edges, ascending. Each is the least number of a cell, right behind the cell in which a quantile lies, so that a
        frequent value does not share its bucket with those above it.
    """
    order = np.argsort(keys)
    keys, below = keys[order], np.cumsum(counts[order])
    if len(keys) < 2:
        return ()
    wanted = np.arange(1, buckets) * (below[-1] / buckets)
    cells = np.unique(np.searchsorted(below, wanted, side="left")) + 1
    return tuple(numbers_of_keys(keys[cells[cells < len(keys)]]).tolist())


class BucketIds:
    """Ids by the bucket of a number: id 1 below the first edge, one more from each edge on, 0 for a missing one."""

    def __init__(self, edges: Sequence[float]) -> None:
        """Cut at `edges`, which ascend."""
        self.edges = tuple(float(edge) for edge in edges)
        self._first_keys = number_keys(np.array(self.edges, np.float32))

    @property
    def rows(self) -> int:
        """Number of ids, the rows of an embedding table."""
        return len(self.edges) + 2

    def ids(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The id of each key of `number_keys`."""
        found = np.searchsorted(self._first_keys, keys, side="right").astype(np.int32) + np.int32(1)
        return np.where(keys == MISSING_KEY, np.int32(0), found)

    def names(self) -> dict[int, str]:
        """What each bucket holds, by id: `below 18`, `18 to 25`, `from 65`."""
        texts = [f"{edge:g}" for edge in self.edges]
        if not texts:
            return {1: "any number"}
        between = (f"{low} to {high}" for low, high in pairwise(texts))
        return dict(enumerate((f"below {texts[0]}", *between, f"from {texts[-1]}"), 1))
