"""Splitters of rows into train (0), validation (1) and test (2), the order of `shunter.engine.data.dataset.SPLITS`."""

import math
from collections.abc import Collection, Iterable
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shunter.errors import DataError
from shunter.ingestion.batch import Columns, RawBatch
from shunter.ingestion.encoding.vocabulary import mix
from shunter.ingestion.schema import Schema, Split

# Size of the sample of times for the cuts: beyond twice this size every second time is dropped.
_SAMPLED_TIMES = 1_000_000
_FEWEST_TIMES = 3
# Share of the rows by which a later cut must be nearer to the target to be preferred.
_NEARER_SHARE = 0.01


class TooFewTimesError(DataError):
    """Error: the rows cannot be split by time."""

    code = "too-few-times"


def row_hashes(columns: Columns, seed: int, left_out: Collection[int] = ()) -> NDArray[np.uint64]:
    """Return a hash of the features of each row, uint64 [rows].

    The hash is multilinear over the columns (Carter and Wegman, 1979) with a mixing step at the end.
    """
    hashed_keys = [keys for index, keys in enumerate(columns.keys) if index not in left_out]
    numeric = [column.view(np.uint32).astype(np.uint64) for column in columns.numeric]
    # The values of a bag have no order, and a sum does not depend on the order.
    sums = [np.concatenate([[np.uint64(0)], np.cumsum(mix(bag.keys), dtype=np.uint64)]) for bag in columns.bags]
    bags = [total[bag.offsets[1:]] - total[bag.offsets[:-1]] for total, bag in zip(sums, columns.bags, strict=True)]
    parts = [*numeric, *hashed_keys, *bags]
    odd = np.random.default_rng(seed).integers(0, 2**63, len(parts), np.uint64) * np.uint64(2) + np.uint64(1)
    hashed = np.zeros(columns.rows, np.uint64)
    for coefficient, part in zip(odd, parts, strict=True):
        hashed += coefficient * part
    return mix(hashed)


class Splitter(Protocol):
    """Splitter that assigns each row independently of other rows, so that both ingestion passes agree."""

    kind: str

    def assign(self, batch: RawBatch) -> NDArray[np.int8]:
        """Return the split of each row, int8 [rows]."""
        ...


class HashSplit:
    """Splitter by a seeded hash of the features: rows with equal features are always in the same split."""

    kind = "hash"

    def __init__(self, shares: Split, seed: int, *, left_out: Collection[int] = ()) -> None:
        """Set the shares and the seed of the hash; `left_out` are indices of key columns that are not hashed."""
        self._left_out = tuple(left_out)
        self._cuts = np.array([shares.train, shares.train + shares.validation])
        self._seed = seed

    @classmethod
    def of(cls, schema: Schema, seed: int) -> Self:
        """Return the splitter of a schema; it does not hash crosses, nor buckets of a column that is also numeric."""
        beside = [index for index, field in enumerate(schema.categorical) if field.name is not None or field.cross]
        return cls(schema.split, seed, left_out=beside)

    def assign(self, batch: RawBatch) -> NDArray[np.int8]:
        """Return the split of each row, int8 [rows]."""
        uniform = (row_hashes(batch.columns, self._seed, self._left_out) >> np.uint64(11)) * 2.0**-53
        return np.searchsorted(self._cuts, uniform, side="right").astype(np.int8)


class TimeSplit:
    """Splitter by time: all training rows are before all validation rows, and these before all test rows."""

    kind = "time"

    def __init__(
        self,
        validation_from: float,
        test_from: float,
        time_range: tuple[float, float] | None = None,
        *,
        is_in_order: bool | None = None,
    ) -> None:
        """Cut at the first time of validation and of test."""
        self.time_range, self.is_in_order = time_range, is_in_order
        self.cuts = validation_from, test_from

    def assign(self, batch: RawBatch) -> NDArray[np.int8]:
        """Return the split of each row, int8 [rows]."""
        assert batch.times is not None
        return np.searchsorted(np.array(self.cuts), batch.times, side="right").astype(np.int8)

    @classmethod
    def fit(cls, times: Iterable[NDArray[np.float64]], shares: Split) -> "TimeSplit":
        """Fit the cut times; rows of equal time share a split, so the shares are met as closely as ties allow.

        Args:
            times: float64 arrays, in the order of the source. Beyond two million rows, every n-th time is used.
            shares: Shares of the three splits.

        Raises:
            TooFewTimesError: There are fewer than three distinct times.
        """
        extremes = _Extremes()
        values = np.sort(_sample(map(extremes.see, times)))
        distinct = np.unique(values)
        if len(distinct) < 3:
            raise TooFewTimesError(
                f"The time column has only {len(distinct)} different readable times, but a split by time "
                "needs at least 3: name another column as `time` in the schema, or leave `time` out to "
                "split by hash."
            )
        rows = len(values)
        before = np.append(np.searchsorted(values, distinct), rows)  # rows before each time
        wanted = [_nearest_time(before, int(rows * share)) for share in (shares.train, 1 - shares.test)]
        first = int(np.clip(wanted[0], 1, len(distinct) - 2))
        second = int(np.clip(wanted[1], first + 1, len(distinct) - 1))
        cuts = float(distinct[first]), float(distinct[second])
        return cls(*cuts, (extremes.first, extremes.last), is_in_order=extremes.is_in_order)


class UserTimeSplit:
    """Splitter by time within the rows of each user; users with fewer than three distinct times are in training."""

    kind = "time of each user"

    def __init__(self, column: int, users: NDArray[np.uint64], cuts: NDArray[np.float64]) -> None:
        """Set the times at which the rows of each user are split.

        Args:
            column: Index of the user among the key columns.
            users: Keys of the users, sorted.
            cuts: First time of validation and of test for each user, float64 [users, 2]; infinity if the user has none.
        """
        self._column, self._users, self._cuts = column, users, cuts

    def assign(self, batch: RawBatch) -> NDArray[np.int8]:
        """Return the split of each row, int8 [rows]; rows without a user are in training."""
        assert batch.times is not None
        keys = batch.columns.keys[self._column]
        if not len(self._users):
            return np.zeros(len(keys), np.int8)
        places = np.minimum(np.searchsorted(self._users, keys), len(self._users) - 1)
        is_later = (batch.times[:, None] >= self._cuts[places]) & (self._users[places] == keys)[:, None]
        return is_later.sum(axis=1).astype(np.int8)

    @classmethod
    def fit(cls, column: int, users: NDArray[np.uint64], times: NDArray[np.float64], shares: Split) -> Self:
        """Fit the cuts of each user; rows of a user with equal times share a split.

        Args:
            column: Index of the user among the key columns.
            users: Key of the user of each row, uint64 [rows].
            times: Time of each row, float64 [rows].
            shares: Shares of the splits, and whether `per_user` leaves one time out or splits by the shares.
        """
        given = (users != 0) & ~np.isnan(times)
        users, times = users[given], times[given]
        order = np.lexsort((times, users))
        users, times = users[order], times[order]
        is_new = np.append(True, (np.diff(users) > 0) | (np.diff(times) > 0))[: len(users)]
        users, times = users[is_new], times[is_new]
        known, first, count = np.unique(users, return_index=True, return_counts=True)
        if shares.per_user == "leave_one_out":
            before = np.stack([count - 2, count - 1], axis=1)
        else:
            before = np.rint(count[:, None] * [shares.train, 1 - shares.test]).astype(np.int64)
            before = np.clip(before, 1, np.stack([count - 2, count - 1], axis=1))
            before[:, 1] = np.maximum(before[:, 1], before[:, 0] + 1)  # a validation of at least one time
        before[count < _FEWEST_TIMES] = 0
        cuts = np.where((count < _FEWEST_TIMES)[:, None], np.inf, times[first[:, None] + before])
        return cls(column, known, cuts)


class GivenSplit:
    """Predefined split of the log; a missing validation or test split is cut from the training rows by hash."""

    kind = "given parts"

    def __init__(self, given: Collection[int], by_hash: HashSplit) -> None:
        self._lacking = [part for part in (1, 2) if part not in given]
        self._by_hash = by_hash

    def assign(self, batch: RawBatch) -> NDArray[np.int8]:
        """Return the split of each row, int8 [rows]."""
        assert batch.parts is not None
        if not self._lacking:
            return batch.parts
        cut = self._by_hash.assign(batch)
        return np.where((batch.parts == 0) & np.isin(cut, self._lacking), cut, batch.parts)


def _nearest_time(before: NDArray[np.int64], wanted: int) -> int:
    """Return the index of the distinct time with about `wanted` rows before it; `before` counts the rows by time."""
    at = int(np.searchsorted(before, wanted, side="right")) - 1
    gain = (wanted - before[at]) - (before[at + 1] - wanted)
    return at + 1 if gain > _NEARER_SHARE * before[-1] else at


class _Extremes:
    """Running first and last time of a stream of batches, and whether the times are sorted."""

    def __init__(self) -> None:
        self.first, self.last, self.is_in_order = math.inf, -math.inf, True

    def see(self, batch: NDArray[np.float64]) -> NDArray[np.float64]:
        """Update the extremes with a batch and return the batch."""
        known = batch[~np.isnan(batch)]
        if len(known):
            self.is_in_order = self.is_in_order and bool(known[0] >= self.last and (np.diff(known) >= 0).all())
        self.first = min(self.first, float(np.nanmin(batch, initial=math.inf)))
        self.last = max(self.last, float(np.nanmax(batch, initial=-math.inf)))
        return batch


def _sample(times: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return every n-th time, n a power of two, so that at most `2 * _SAMPLED_TIMES` are left."""
    kept: list[NDArray[np.float64]] = []
    step, seen, size = 1, 0, 0
    for batch in times:
        part = batch[-seen % step :: step]
        seen += len(batch)
        kept.append(part)
        size += len(part)
        if size > 2 * _SAMPLED_TIMES:
            kept = [np.concatenate(kept)[::2]]
            step, size = 2 * step, len(kept[0])
    return np.concatenate(kept) if kept else np.empty(0)
