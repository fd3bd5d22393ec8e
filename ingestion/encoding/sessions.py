"""Sessions of a log: rows of a user in order of time, divided where the gap to the earlier time is too long.

A session is identified by its user and its first time, so that it has the same id in every file and run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.errors import ColumnError, DataError
from shunter.ingestion.batch import MISSING_KEY, TableChunk
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding import times
from shunter.ingestion.encoding.vocabulary import mix
from shunter.ingestion.schema import Schema
from shunter.ingestion.time_format import TimeReading

UserTimes = tuple[NDArray[np.uint64], NDArray[np.float64]]
_MICROSECONDS = 1e6
_DAY_MICROSECONDS = 86_400 * _MICROSECONDS


@dataclass(frozen=True)
class Sessions:
    """Sessions of a log, which are added to its rows as columns.

    Attributes:
        moments: Hashes of user and time, sorted, uint64 [moments].
        values: Value of each session column at each moment, [moments], by name.
        count: Number of sessions.
        rows: Number of rows with a user and a time.
        rows_of_other_days: Number of these rows that are not on the most frequent UTC day; 0 without `within_day`.
    """

    moments: NDArray[np.uint64]
    values: Mapping[str, NDArray[Any]]
    count: int
    rows: int
    rows_of_other_days: int = 0

    def add_to(self, chunk: TableChunk, schema: Schema, reading: TimeReading) -> TableChunk:
        """Return a chunk with the session columns; they are null in rows without a user or a time."""
        hashes = _hashes(*user_times(chunk, schema, reading))
        places = np.minimum(np.searchsorted(self.moments, hashes), len(self.moments) - 1)
        unknown = pl.Series(self.moments[places] != hashes)
        added = [pl.Series(name, self.values[name][places]).set(unknown, None) for name in schema.session_columns]
        return replace(chunk, table=chunk.table.with_columns(added))


def user_times(chunk: TableChunk, schema: Schema, reading: TimeReading) -> UserTimes:
    """Return the key of the user and the time of each row, uint64 and float64 [rows].

    Raises:
        ColumnError: The user column holds lists, or the time column holds times of day without a date.
    """
    assert schema.sessions is not None
    assert schema.sessions.by is not None, "the schema checks it"
    assert schema.time is not None, "the schema checks it"
    user, time = schema.sessions.by, schema.time
    if chunk.table[user].dtype.is_nested():
        raise ColumnError(user, chunk.path, "holds lists, and sessions need one user in each row")
    if chunk.table[time].dtype == pl.Time:
        raise ColumnError(time, chunk.path, "holds times of day, and sessions need dates too")
    users, moments = (
        read.in_usual_form(read.as_text(chunk.table[name])[0], schema, is_number=name in schema.number_columns)
        for name in (user, time)
    )
    return read.text_keys(users, schema.key_kind(user)), times.moments(moments, reading)


def fit_sessions(
    schema: Schema, pieces: Iterable[UserTimes], microseconds_per_unit: float | None, name: str
) -> Sessions:
    """Return the sessions of a log, from a pass over its users and times.

    Args:
        schema: Schema with `sessions`.
        pieces: Key of the user and time of each row, in any order.
        microseconds_per_unit: Unit of the times in microseconds; None if unknown.
        name: Name of the log, for the error message.

    Raises:
        DataError: The unit of the times is unknown, or no row has a user and a time.
    """
    gaps = schema.sessions
    assert gaps is not None
    if microseconds_per_unit is None:
        raise DataError(
            f"The unit of the numbers in {schema.time} is unknown, but sessions need it: write `time: "
            f"{{column: {schema.time}, format: seconds}}` in the schema, or another unit."
        )
    none = np.empty(0, np.uint64), np.empty(0, np.float64)
    users, moments = (np.concatenate(arrays) for arrays in zip(none, *pieces, strict=True))
    if not len(users):  # such as a day without rows
        return Sessions(users, dict.fromkeys(schema.session_columns, moments), 0, 0)
    given = (users != MISSING_KEY) & ~np.isnan(moments)
    users, moments = users[given], moments[given]
    of_days = np.zeros(1, int)
    if not len(users):
        raise DataError(
            f"Sessions need a user and a time, but no row of {name} has a value of both {gaps.by} and {schema.time}."
        )
    if gaps.within_day:
        of_days = np.unique(moments * microseconds_per_unit // _DAY_MICROSECONDS, return_counts=True)[1]
    order = np.lexsort((moments, users))
    users, moments = users[order], moments[order]
    rows_before = np.flatnonzero(np.append(True, (np.diff(users) > 0) | (np.diff(moments) > 0)))
    users, moments = users[rows_before], moments[rows_before]
    seconds = np.diff(moments, prepend=np.nan) * (microseconds_per_unit / _MICROSECONDS)
    seconds[np.append(True, np.diff(users) > 0)] = np.nan
    if gaps.within_day:
        days = moments * microseconds_per_unit // _DAY_MICROSECONDS
        seconds[np.append(True, np.diff(days) != 0)] = np.nan
    begins = np.isnan(seconds) | (seconds > gaps.gap_minutes * 60)
    first = np.maximum.accumulate(np.where(begins, np.arange(len(users)), 0))
    of_columns = {
        gaps.column: (_hashes(users, moments[first]) >> np.uint64(1)).astype(np.int64),
        gaps.position: (rows_before - rows_before[first]).astype(np.int32),
        gaps.seconds_since_previous: seconds.astype(np.float32),
    }
    hashes = _hashes(users, moments)
    order = np.argsort(hashes)
    values = {name: of_columns[name][order] for name in schema.session_columns}
    return Sessions(hashes[order], values, int(begins.sum()), int(given.sum()), int(of_days.sum() - of_days.max()))


def _hashes(users: NDArray[np.uint64], moments: NDArray[np.float64]) -> NDArray[np.uint64]:
    return mix(users ^ mix((moments + 0.0).view(np.uint64)))  # the sum makes -0 and 0 one time
