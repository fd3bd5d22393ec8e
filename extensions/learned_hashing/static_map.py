"""Static map from known keys to small integers that stores no keys and needs a third more bits than the integers.

The map is a Bloomier filter in the form of Graf and Lemire's xor filters (2020; construction by Majewski et al., 1996).
Each key has three slots, and the number of a key is the exclusive or of the three slot contents. Check bits from the
key's hash are stored with the number, so that most unknown keys are detected.
"""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.encoding.vocabulary import Keys, mix

MOST_BITS = 33  # largest number of bits of a slot, which is read as five bytes
CHECK_BITS = 4  # an unknown key is mistaken for a known key with a probability of 2**-4
_SLOTS_PER_KEY = 1.23  # below 1.222 an order for filling the slots rarely exists
_SPARE_SLOTS = 32
_STEP = 0x9E3779B97F4A7C15
_NONE = -1


class StaticMap:
    """Map from keys to integers.

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
