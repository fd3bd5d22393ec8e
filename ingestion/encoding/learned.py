"""Ids that behave alike share a row: the third kind of vocabulary, beside exact and hashed ids.

The idea is that of Learning to Collide (Ghaemmaghami et al., 2022): which ids share a row is learned from how often
they are seen and from vectors of a small model (`shunter.ingestion.encoding.behaviour`). A table has three parts, in
this
order: rows of one frequent value each, rows of values that behave alike, and rows of rare and unseen values, which are
hashed to them. So what is learned of values that nobody knows does not disturb the others.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import MISSING_KEY
from shunter.ingestion.encoding.static_map import MOST_BITS, StaticMap
from shunter.ingestion.encoding.vocabulary import Keys, mix

Arrays = dict[str, NDArray[np.int64] | NDArray[np.uint8]]
Weights = NDArray[np.floating[Any]]
OWN_SHARE = 0.5  # of the rows that are not hashed to: those of one frequent value each
HASHED_SHARE = 0.125  # of all rows: those of rare and unseen values


@dataclass(frozen=True)
class Grouping:
    """Which row each value of a table has, from 0 on.

    Attributes:
        rows: int64 [values that have one], the most frequent value first; those behind them are hashed.
        own: Rows of one value each, the first of all.
        shared: Rows of values that behave alike, which follow.
        hashed: Rows of values that are not among these, the last of all.
    """

    rows: NDArray[np.int64]
    own: int
    shared: int
    hashed: int


class LearnedIds:
    """Ids by a learned map; id 0 is the missing value.

    Attributes:
        own: Ids of one value each, from 1 on.
        shared: Ids of values that behave alike, which follow.
        hashed: Ids of rare and unseen values, the last ones.
        map: From the keys of known values to their rows, from 0 on.
    """

    def __init__(self, own: int, shared: int, hashed: int, map_: StaticMap) -> None:
        """Take over what was learned."""
        self.own, self.shared, self.hashed, self.map = own, shared, hashed, map_

    @classmethod
    def of(cls, keys: Keys, grouping: Grouping) -> "LearnedIds":
        """Ids of distinct keys, the most frequent first, of which `grouping` gives rows to the first ones."""
        known = keys[: len(grouping.rows)]
        return cls(grouping.own, grouping.shared, grouping.hashed, StaticMap.build(known, grouping.rows))

    @property
    def arrays(self) -> Arrays:
        """What it is made of, for a file without code."""
        sizes = [self.own, self.shared, self.hashed, self.map.salt, self.map.segment, self.map.bits]
        return {"sizes": np.array(sizes, np.int64), "slots": self.map.packed}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "LearnedIds":
        """From `arrays`.

        Raises:
            ValueError: They do not belong together.
        """
        own, shared, hashed, salt, segment, bits = arrays["sizes"].tolist()
        slots = np.asarray(arrays["slots"], np.uint8)
        if min(own, shared, salt) < 0 or min(hashed, segment) < 1 or not 1 <= bits <= MOST_BITS:
            raise ValueError("a learned map with sizes that none has")
        if len(slots) != -(-3 * segment * bits // 8):
            raise ValueError("a learned map whose slots are not as many as they should be")
        return cls(own, shared, hashed, StaticMap(salt, segment, bits, slots))

    def is_same(self, other: object) -> bool:
        """Whether every value has the same id in both."""
        return isinstance(other, LearnedIds) and all(
            np.array_equal(array, other.arrays[name]) for name, array in self.arrays.items()
        )

    @property
    def rows(self) -> int:
        """Number of ids, the rows of an embedding table."""
        return 1 + self.own + self.shared + self.hashed

    def ids(self, keys: Keys) -> NDArray[np.int32]:
        """The id of each key."""
        rows = self.map.numbers(keys)
        known = (rows >= 0) & (rows < self.own + self.shared)
        hashed = (mix(keys) % np.uint64(self.hashed)).astype(np.int64) + self.own + self.shared
        ids = (np.where(known, rows, hashed) + 1).astype(np.int32)
        return np.where(keys == MISSING_KEY, np.int32(0), ids)


def write_vocabularies(
    directory: Path, vocabularies: Sequence[Keys], learned: Mapping[str, LearnedIds] | None = None
) -> None:
    """Write the keys of the fields that have a vocabulary of their own, in their order, into `vocabulary.npz`.

    Args:
        directory: Folder of the encoder.
        vocabularies: The keys.
        learned: Learned maps by their fields, which are written beside them.
    """
    ends = np.cumsum([0, *map(len, vocabularies)])
    keys = np.concatenate([np.empty(0, np.uint64), *vocabularies])
    arrays: dict[str, Any] = {"keys": keys, "ends": ends}
    for field, ids in (learned or {}).items():
        arrays |= {f"learned.{part}.{field}": array for part, array in ids.arrays.items()}
    np.savez(directory / "vocabulary.npz", **arrays)


def learned_ids(stored: Mapping[str, NDArray[Any]]) -> dict[str, LearnedIds]:
    """Learned maps by field, of arrays named as `write_vocabularies` names them.

    Raises:
        ValueError: One cannot be a map.
        KeyError: One is not whole.
    """
    sizes, slots = "learned.sizes.", "learned.slots."
    fields = [name.removeprefix(sizes) for name in stored if name.startswith(sizes)]
    return {
        field: LearnedIds.from_arrays({"sizes": stored[sizes + field], "slots": stored[slots + field]})
        for field in fields
    }


def group(counts: NDArray[np.int64], points: NDArray[np.float64], rows: int, least: float = 0.0) -> Grouping:
    """Give rows to values: the most frequent one each, and those that behave alike one together.

    Values that were seen too seldom to know how they behave are hashed like unseen ones, unless there is a row for
    each: grouped by what chance did to them, they would teach the model the labels of its training rows.

    Args:
        counts: How often each value was seen, in descending order.
        points: How each behaves, `[values, numbers]`: the further apart two are, the more they lose by sharing a row.
        rows: Rows of the table at most, 2 or more, without that of the missing value; fewer come out where every value
            has one of its own.
        least: How often a value was seen at least whose behaviour is known.
    """
    hashed = max(1, round(rows * HASHED_SHARE))
    known = rows - hashed
    told = int(np.count_nonzero(counts >= least))  # the first ones
    if len(counts) <= known or told <= known:
        own = min(len(counts), known)
        return Grouping(np.arange(own), own, 0, hashed)
    own = int(known * OWN_SHARE)
    groups = split_points(points[own:told], counts[own:told] + 0.5, known - own)
    return Grouping(np.concatenate([np.arange(own), own + groups]), own, known - own, hashed)


def split_points(points: NDArray[np.float64], weights: Weights, count: int) -> NDArray[np.int64]:
    """Cut weighted points into groups, of little variance within each.

    As long as there are too few groups, the one is cut in two that loses most of its sum of squares by that (Wan, Wong
    and Prusinkiewicz, 1988): at the best place along the direction of its widest spread. This takes the order of
    n log n steps where k-means takes n times the number of groups, and no draws of random numbers.

    Args:
        points: float64 [points, numbers].
        weights: Of each point, above 0.
        count: Groups, at most as many as points.

    Returns:
        The group of each point, the heaviest group first.
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
    """Where a group would best be cut.

    Returns:
        What is gained by it and the weight of the group, both negative, so that the smallest is cut first; its number;
        its members in their order along the widest direction; and how many of them come before the cut.
    """
    here, weight = points[members], weights[members]
    total = weight.sum()
    if len(members) == 1:
        return 1.0, -float(total), number, members, 0  # after all that can be cut
    centred = here - weight @ here / total
    along = centred @ np.linalg.eigh((centred * weight[:, None]).T @ centred)[1][:, -1]
    order = np.argsort(along, kind="stable")
    before = np.cumsum(weight[order])[:-1]
    sums = np.cumsum((weight * along)[order])[:-1]
    # What the sum of squares loses: with both means about the common one, which is 0.
    gains = sums**2 * (1 / before + 1 / (total - before))
    at = int(gains.argmax())
    if gains[at] <= 0:  # all alike
        at = int(np.searchsorted(before, total / 2).clip(0, len(before) - 1))
    return -float(gains[at]), -float(total), number, members[order], at + 1
