"""Vocabularies: counting of keys, and ids by frequency or by hashing."""

from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from shunter.ingestion.batch import MISSING_KEY

Keys = NDArray[np.uint64]

# Largest number of distinct values counted in one column: merging this many takes some 700 MB.
DISTINCT_VALUES_LIMIT = 8_000_000
_FIRST_CAPACITY = 1 << 16
FEW = 8  # up to this number of keys, single lookups are faster than a vectorised lookup
_MOST_SHORT = np.iinfo(np.uint16).max


class ValueCounter:
    """Counter of the distinct keys of one column over any number of batches.

    Batches are appended to one array until the array is full. Then equal keys are merged, and an array that stays more
    than half full grows, which amortises the cost of merges. One long-lived array instead of many short-lived ones
    avoids heap fragmentation.

    Attributes:
        size: Number of used entries of the array.
        missing: Number of missing values.
        total: Number of all values, including missing values.
    """

    def __init__(self, limit: int = DISTINCT_VALUES_LIMIT) -> None:
        """Count at most `limit` distinct keys; beyond the limit the rarest keys are dropped."""
        self._limit = limit
        self._keys: Keys = np.empty(_FIRST_CAPACITY, np.uint64)
        self._counts: NDArray[np.int64] = np.empty(_FIRST_CAPACITY, np.int64)
        self.size = 0
        self.missing = 0
        self.total = 0

    def add(self, keys: Keys, counts: NDArray[np.int64]) -> None:
        """Add the keys and counts of one batch, as returned by `count_keys`."""
        present = keys != MISSING_KEY
        self.total += int(counts.sum())
        self.missing += int(counts[~present].sum())
        keys, counts = keys[present], counts[present]
        if self.size + len(keys) > len(self._keys):
            self._merge()
            # Without the rarer half of the keys frequent values survive, as in lossy counting (Manku and Motwani,
            # 2002). The number of distinct values becomes a lower bound.
            while self.size > self._limit:
                held = self._counts[: self.size]
                frequent = held > np.median(held)
                self._keep(self._keys[: self.size][frequent], held[frequent])
            needed = self.size + len(keys)
            if needed > len(self._keys) // 2:
                capacity = max(needed, len(self._keys)) * 3 // 2
                former = self._keys[: self.size], self._counts[: self.size]
                self._keys, self._counts = np.empty(capacity, np.uint64), np.empty(capacity, np.int64)
                self._keep(*former)
        self._keys[self.size : self.size + len(keys)] = keys
        self._counts[self.size : self.size + len(keys)] = counts
        self.size += len(keys)

    def by_frequency(self) -> tuple[Keys, NDArray[np.int64]]:
        """Return all keys and their counts, most frequent first; ties are in the order of the keys."""
        self._merge()
        keys, counts = self._keys[: self.size], self._counts[: self.size]
        order = np.argsort(keys)
        rarity = (_MOST_SHORT - np.minimum(counts, _MOST_SHORT)).astype(np.uint16)  # nearly all counts fit
        order = order[np.argsort(rarity[order], kind="stable")]  # a radix sort
        frequent = int((counts >= _MOST_SHORT).sum())
        order[:frequent] = order[:frequent][np.argsort(-counts[order[:frequent]], kind="stable")]
        return keys[order], counts[order]

    def _merge(self) -> None:
        codes, keys = distinct(self._keys[: self.size])
        # float64 sums are exact up to 2**53 rows.
        counts = np.bincount(codes, weights=self._counts[: self.size], minlength=len(keys))
        self._keep(keys, counts.astype(np.int64))

    def _keep(self, keys: Keys, counts: NDArray[np.int64]) -> None:
        self.size = len(keys)
        self._keys[: self.size] = keys
        self._counts[: self.size] = counts


def count_keys(keys: Keys) -> tuple[Keys, NDArray[np.int64]]:
    """Return the distinct keys of one batch and the count of each."""
    codes, found = distinct(keys)
    return found, np.bincount(codes, minlength=len(found))


def distinct(keys: Keys) -> tuple[NDArray[np.intp], Keys]:
    """Return the position of each key among the distinct keys, and the distinct keys."""
    codes, found = pd.factorize(keys)
    return codes, np.asarray(found)


class IdMap(Protocol):
    """Map from keys to ids; id 0 is the missing and the unknown value."""

    @property
    def rows(self) -> int:
        """Number of ids, which is the number of rows of the embedding table."""
        ...

    def ids(self, keys: Keys) -> NDArray[np.int32]:
        """Return the id of each key, int32 [keys]."""
        ...


class VocabularyIds:
    """Ids by frequency rank: id 1 is the most frequent value, so frequently accessed rows of a table are adjacent."""

    def __init__(self, keys: Keys) -> None:
        """Build the lookup table from distinct keys without `MISSING_KEY`, most frequent first."""
        self.keys = keys
        self._index = pd.Index(keys)
        # The first lookup builds the hash table, which must not happen in two threads at once.
        self._index.get_indexer(keys[:1])

    @property
    def rows(self) -> int:
        """Number of ids, which is the number of rows of the embedding table."""
        return len(self.keys) + 1

    def ids(self, keys: Keys) -> NDArray[np.int32]:
        """Return the id of each key in the vocabulary, int32 [keys]."""
        if len(keys) <= FEW:
            return np.array([self._id(key) for key in keys.tolist()], np.int32)
        # get_indexer returns -1 for an unknown key.
        return (self._index.get_indexer(keys) + 1).astype(np.int32)

    def _id(self, key: int) -> int:
        try:
            return int(self._index.get_loc(key)) + 1  # pyright: ignore[reportArgumentType] - the keys are distinct
        except KeyError:
            return 0


class HashedIds:
    """Ids by hashing, without a vocabulary; unknown values share ids with known values."""

    def __init__(self, size: int) -> None:
        """Set the number of ids; keys are hashed to the ids 1 to `size`."""
        self.size = size

    @property
    def rows(self) -> int:
        """Number of ids, which is the number of rows of the embedding table."""
        return self.size + 1

    def ids(self, keys: Keys) -> NDArray[np.int32]:
        """Return the id of each key, int32 [keys]."""
        hashed = (mix(keys) % np.uint64(self.size)).astype(np.int32) + np.int32(1)
        return np.where(keys == MISSING_KEY, np.int32(0), hashed)


def mix(values: Keys) -> Keys:
    """Scatter 64-bit values: the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def access_curve(counts: NDArray[np.int64], points: int = 32) -> tuple[tuple[float, float], ...]:
    """Return the access curve of a table, which shows the skew of its lookups.

    Args:
        counts: Number of lookups of each id, in any order.
        points: Largest number of points of the curve; the shares of ids are spaced logarithmically.

    Returns:
        Pairs (share of ids, share of lookups of these ids), most frequent ids first; the last pair is (1, 1). Empty
        without lookups.
    """
    if counts.sum() == 0:
        return ()
    cumulative = np.cumsum(np.sort(counts)[::-1])
    ranks = np.unique(np.geomspace(1, len(counts), num=min(points, len(counts))).round().astype(np.int64))
    return tuple((float(rank / len(counts)), float(cumulative[rank - 1] / cumulative[-1])) for rank in ranks)
