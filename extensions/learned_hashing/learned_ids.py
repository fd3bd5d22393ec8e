"""Learned id maps, in which values with similar behaviour share an embedding row, besides exact and hashed ids.

The idea is from Learning to Collide (Ghaemmaghami et al., 2022). The values that share a row are learned from their
counts and from vectors of a small model (`shunter.extensions.learned_hashing.behaviour`). A table has three parts in
this order: rows of one frequent value each, rows of values with similar behaviour, and rows that rare and unseen values
are hashed to. Gradients of unseen values therefore do not disturb the rows of known values.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import MISSING_KEY
from shunter.ingestion.encoding.learned_map import Arrays, LearnedMap
from shunter.ingestion.encoding.vocabulary import Keys, mix

Weights = NDArray[np.floating[Any]]
OWN_SHARE = 0.5  # share of the rows of one frequent value each, among the rows for known values
HASHED_SHARE = 0.125  # share of the rows for rare and unseen values, among all rows
MOST_BITS = 33  # largest number of bits of a slot, which is read as five bytes
CHECK_BITS = 4  # an unknown key is mistaken for a known key with a probability of 2**-4
_SLOTS_PER_KEY = 1.23  # below 1.222 an order for filling the slots rarely exists
_SPARE_SLOTS = 32
_STEP = 0x9E3779B97F4A7C15
_NONE = -1


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

    def __init__(self, own: int, shared: int, hashed: int, map_: "StaticMap") -> None:
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


class StaticMap:
    """Map from known keys to small integers that stores no keys and needs a third more bits than the integers.

    The map is a Bloomier filter in the form of Graf and Lemire's xor filters (2020; construction by Majewski et al.,
    1996). Each key has three slots, and the number of a key is the exclusive or of the three slot contents. Check bits
    from the key's hash are stored with the number, so that most unknown keys are detected.

    Attributes:
        salt: Seed of the hash functions, the first seed for which the slots can be filled.
        segment: Number of slots of each of the three hash functions.
        bits: Bits of a slot: the bits of a number plus `CHECK_BITS`.
        packed: Slots as packed bits, uint8.
    """

    def __init__(self, salt: int, segment: int, bits: int, packed: NDArray[np.uint8]) -> None:
        """Set the parameters and slots made by `build`."""
        self.salt, self.segment, self.bits, self.packed = salt, segment, bits, packed
        # A slot is read as five bytes, starting with the byte of its first bit.
        self._bytes = np.concatenate([packed, np.zeros(5, np.uint8)])

    @classmethod
    def build(cls, keys: Keys, numbers: NDArray[np.int64]) -> Self:
        """Build the map from distinct `keys` to `numbers`, which are below 2**28."""
        number_bits = max(1, int(numbers.max(initial=0)).bit_length())
        segment = (int(_SLOTS_PER_KEY * len(keys)) + _SPARE_SLOTS) // 3
        salt, order = next(
            (salt, order)
            for salt in range(1_000)
            if (order := _order(slots_of(keys, salt, segment)[0], 3 * segment)) is not None
        )
        slots, checks = slots_of(keys, salt, segment)
        wanted = numbers.astype(np.uint64) | (checks << np.uint64(number_bits))
        table = np.zeros(3 * segment, np.uint64)
        for members, own in reversed(order):
            others = np.bitwise_xor.reduce(table[slots[:, members]], axis=0)  # its own slot is still zero
            table[own] = wanted[members] ^ others
        bits = number_bits + CHECK_BITS
        places = np.arange(bits - 1, -1, -1, dtype=np.uint64)
        packed = np.packbits((table[:, None] >> places & np.uint64(1)).astype(np.uint8))
        return cls(salt, segment, bits, packed)

    @property
    def bytes(self) -> int:
        """Size of the slots in bytes."""
        return self.packed.nbytes

    def numbers(self, keys: Keys) -> NDArray[np.int64]:
        """Return the integer to which each key maps, int64 [keys]; -1 for keys detected as unknown."""
        slots, checks = slots_of(keys, self.salt, self.segment)
        found = self._slot(slots[0]) ^ self._slot(slots[1]) ^ self._slot(slots[2])
        number_bits = np.uint64(self.bits - CHECK_BITS)
        numbers = (found & ((np.uint64(1) << number_bits) - np.uint64(1))).astype(np.int64)
        return np.where(found >> number_bits == checks, numbers, _NONE)

    def _slot(self, slots: NDArray[np.int64]) -> Keys:
        first_bits = slots * self.bits
        first = first_bits >> 3
        read = np.zeros(len(slots), np.uint64)
        for number in range(5):
            read = read << np.uint64(8) | self._bytes[first + number]
        shift = (40 - self.bits - (first_bits & 7)).astype(np.uint64)
        return read >> shift & np.uint64((1 << self.bits) - 1)


def slots_of(keys: Keys, salt: int, segment: int) -> tuple[NDArray[np.int64], Keys]:
    """Return the three slots of each key, int64 `[3, keys]`, and the check bits, uint64 [keys]."""
    hashed = mix(keys + np.uint64(_STEP * (salt + 1) % 2**64))
    checks = hashed & np.uint64((1 << CHECK_BITS) - 1)
    slots = np.empty((3, len(keys)), np.int64)
    for number in range(3):
        slots[number] = ((hashed >> np.uint64(32)) * np.uint64(segment) >> np.uint64(32)).astype(np.int64)
        slots[number] += number * segment
        hashed = mix(hashed + np.uint64(_STEP))
    return slots, checks


def _order(slots: NDArray[np.int64], count: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]] | None:
    """Return the order in which the slots are filled, in reverse; None if the slots of some keys cannot be separated.

    Each round has keys and one slot for each of them, which no other key of this round or of a later round uses.
    """
    degrees = np.bincount(slots.ravel(), minlength=count)
    members = np.zeros(count, np.int64)  # for a slot with a single key: the index of the key
    keys = np.arange(slots.shape[1])
    for own in slots:
        np.bitwise_xor.at(members, own, keys)
    rounds: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    left = slots.shape[1]
    singles = np.flatnonzero(degrees == 1)
    while len(singles):
        found, first = np.unique(members[singles], return_index=True)
        rounds.append((found, singles[first]))
        left -= len(found)
        for own in slots[:, found]:
            np.subtract.at(degrees, own, 1)
            np.bitwise_xor.at(members, own, found)
        touched = np.unique(slots[:, found])
        singles = touched[degrees[touched] == 1]
    return None if left else rounds
