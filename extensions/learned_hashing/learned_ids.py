"""Learned id maps, in which values with similar behaviour share an embedding row, besides exact and hashed ids.

The idea is from Learning to Collide (Ghaemmaghami et al., 2022). The values that share a row are learned from their
counts and from vectors of a small model (`shunter.extensions.learned_hashing.behaviour`). A table has three parts in
this order: rows of one frequent value each, rows of values with similar behaviour, and rows that rare and unseen values
are hashed to. Gradients of unseen values therefore do not disturb the rows of known values.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shunter.extensions.learned_hashing.static_map import MOST_BITS, StaticMap
from shunter.ingestion.batch import MISSING_KEY
from shunter.ingestion.encoding.learned_map import Arrays, LearnedMap
from shunter.ingestion.encoding.vocabulary import Keys, mix

Weights = NDArray[np.floating[Any]]
OWN_SHARE = 0.5  # share of the rows of one frequent value each, among the rows for known values
HASHED_SHARE = 0.125  # share of the rows for rare and unseen values, among all rows


@dataclass(frozen=True)
class Grouping:
    """Assignment of the values of a table to rows, counted from 0.

    Attributes:
        rows: int64 [assigned values], row of each value, most frequent value first; further values are hashed.
        own: Number of rows with one value each, the first rows.
        shared: Number of rows shared by values with similar behaviour, after the `own` rows.
        hashed: Number of rows for all other values, the last rows.
    """

    rows: NDArray[np.int64]
    own: int
    shared: int
    hashed: int


class LearnedIds(LearnedMap):
    """Ids by a learned map; id 0 is the missing value.

    Attributes:
        own: Number of ids with one value each, from id 1.
        shared: Number of ids shared by values with similar behaviour, after the `own` ids.
        hashed: Number of ids for rare and unseen values, the last ids.
        map: Map from the keys of known values to rows, counted from 0.
    """

    def __init__(self, own: int, shared: int, hashed: int, map_: StaticMap) -> None:
        """Set the numbers of ids and the map."""
        self.own, self.shared, self.hashed, self.map = own, shared, hashed, map_

    @classmethod
    def of(cls, keys: Keys, grouping: Grouping) -> "LearnedIds":
        """Build the map from distinct keys, most frequent first; `grouping` assigns rows to the first keys."""
        known = keys[: len(grouping.rows)]
        return cls(grouping.own, grouping.shared, grouping.hashed, StaticMap.build(known, grouping.rows))

    @property
    def arrays(self) -> Arrays:
        """Arrays that define the map, for a file without code."""
        sizes = [self.own, self.shared, self.hashed, self.map.salt, self.map.segment, self.map.bits]
        return {"sizes": np.array(sizes, np.int64), "slots": self.map.packed}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "LearnedIds":
        """Build the map from `arrays`.

        Raises:
            ValueError: The arrays are inconsistent.
        """
        own, shared, hashed, salt, segment, bits = arrays["sizes"].tolist()
        slots = np.asarray(arrays["slots"], np.uint8)
        if min(own, shared, salt) < 0 or min(hashed, segment) < 1 or not 1 <= bits <= MOST_BITS:
            raise ValueError("the learned map from values to table rows has invalid sizes")
        if len(slots) != -(-3 * segment * bits // 8):
            raise ValueError("the learned map from values to table rows has a wrong number of slots")
        return cls(own, shared, hashed, StaticMap(salt, segment, bits, slots))

    def is_same(self, other: object) -> bool:
        """Return True if `other` is a learned map that gives every value the same id."""
        return isinstance(other, LearnedIds) and all(
            np.array_equal(array, other.arrays[name]) for name, array in self.arrays.items()
        )

    @property
    def bytes(self) -> int:
        """Size of the map."""
        return self.map.bytes

    @property
    def contents(self) -> str:
        """Numbers of ids with one value, with similar values, and with rare or new values, as text for messages."""
        return f"{self.own:,} of one value, {self.shared:,} of values alike, {self.hashed:,} of rare and new values"

    @property
    def rows(self) -> int:
        """Number of ids, which is the number of rows of the embedding table."""
        return 1 + self.own + self.shared + self.hashed

    def ids(self, keys: Keys) -> NDArray[np.int32]:
        """Return the id of each key, int32 [keys]."""
        rows = self.map.numbers(keys)
        known = (rows >= 0) & (rows < self.own + self.shared)
        hashed = (mix(keys) % np.uint64(self.hashed)).astype(np.int64) + self.own + self.shared
        ids = (np.where(known, rows, hashed) + 1).astype(np.int32)
        return np.where(keys == MISSING_KEY, np.int32(0), ids)


def learned_ids(stored: Mapping[str, NDArray[Any]]) -> dict[str, LearnedIds]:
    """Return the learned maps by field from the arrays that `write_vocabularies` writes.

    Raises:
        ValueError: The arrays of a map are inconsistent.
        KeyError: An array of a map is missing.
    """
    sizes, slots = "learned.sizes.", "learned.slots."
    fields = [name.removeprefix(sizes) for name in stored if name.startswith(sizes)]
    return {
        field: LearnedIds.from_arrays({"sizes": stored[sizes + field], "slots": stored[slots + field]})
        for field in fields
    }


def group(counts: NDArray[np.int64], points: NDArray[np.float64], rows: int, least: float = 0.0) -> Grouping:
    """Assign rows to values: one row each to the most frequent values, shared rows to values with similar behaviour.

    Values with a count below `least` are hashed like unseen values, unless the table has a row for each value. Grouping
    rare values by their noisy behaviour would leak the labels of training rows to the model.

    Args:
        counts: int64 [values], count of each value in descending order.
        points: Behaviour of each value, `[values, numbers]`; the loss of sharing a row grows with the distance.
        rows: Largest number of rows, at least 2, without the row of the missing value. The table has fewer rows if
            every value gets a row of its own.
        least: Smallest count at which the behaviour of a value counts as known.
    """
    hashed = max(1, round(rows * HASHED_SHARE))
    known = rows - hashed
    told = int(np.count_nonzero(counts >= least))  # number of values with known behaviour, which come first
    if len(counts) <= known or told <= known:
        own = min(len(counts), known)
        return Grouping(np.arange(own), own, 0, hashed)
    own = int(known * OWN_SHARE)
    groups = split_points(points[own:told], counts[own:told] + 0.5, known - own)
    return Grouping(np.concatenate([np.arange(own), own + groups]), own, known - own, hashed)


def split_points(points: NDArray[np.float64], weights: Weights, count: int) -> NDArray[np.int64]:
    """Cluster weighted points into groups of small within-group variance, by recursive splitting.

    Until there are `count` groups, the group whose split reduces the sum of squares most is split in two (Wan, Wong and
    Prusinkiewicz, 1988). The split is at the best position along the first principal direction. The method takes about
    n log n steps, k-means n times the number of groups; no random numbers are drawn.

    Args:
        points: float64 [points, numbers].
        weights: Weight of each point, above 0, [points].
        count: Number of groups, at most the number of points.

    Returns:
        Group of each point, int64 [points]; group 0 has the largest weight.
    """
    waiting = [_cut(np.arange(len(points)), points, weights, 0)]
    for number in range(1, count):
        *_, members, at = heapq.heappop(waiting)
        heapq.heappush(waiting, _cut(members[:at], points, weights, 2 * number - 1))
        heapq.heappush(waiting, _cut(members[at:], points, weights, 2 * number))
    groups = np.empty(len(points), np.int64)
    by_weight = sorted(((-weights[members].sum(), number, members) for _, _, number, members, _ in waiting))
    for group_number, (_, _, members) in enumerate(by_weight):
        groups[members] = group_number
    return groups


_Cut = tuple[float, float, int, NDArray[np.int64], int]


def _cut(members: NDArray[np.int64], points: NDArray[np.float64], weights: Weights, number: int) -> _Cut:
    """Find the best split of a group.

    Returns:
        Negative reduction of the sum of squares and negative weight of the group; the smallest pair is split first.
        Then the number of the group, its members sorted along the first principal direction, and the number of members
        before the split.
    """
    here, weight = points[members], weights[members]
    total = weight.sum()
    if len(members) == 1:
        return 1.0, -float(total), number, members, 0  # sorts after all groups that can be split
    centred = here - weight @ here / total
    along = centred @ np.linalg.eigh((centred * weight[:, None]).T @ centred)[1][:, -1]
    order = np.argsort(along, kind="stable")
    before = np.cumsum(weight[order])[:-1]
    sums = np.cumsum((weight * along)[order])[:-1]
    # Reduction of the sum of squares; the common mean of both halves is 0.
    gains = sums**2 * (1 / before + 1 / (total - before))
    at = int(gains.argmax())
    if gains[at] <= 0:  # all points are equal
        at = int(np.searchsorted(before, total / 2).clip(0, len(before) - 1))
    return -float(gains[at]), -float(total), number, members[order], at + 1
