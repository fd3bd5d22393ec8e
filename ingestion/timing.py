"""Split by time: one pass over the time column finds its format and the cut times between the splits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shunter.errors import DataError
from shunter.ingestion.batch import Rejection, Unit
from shunter.ingestion.encoding.split import TimeSplit, TooFewTimesError, UserTimeSplit
from shunter.ingestion.encoding.times import TimesSeen
from shunter.ingestion.progress import TIMES, ProgressReporter
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.tabular import TableChunk, TableSource, only_time, see_times
from shunter.ingestion.sources.units import LineCount
from shunter.ingestion.survey import no_rows
from shunter.ingestion.time_format import TimeReading
from shunter.ingestion.workers import Crew, on_crew
from shunter.ingestion.writer import Tally
from shunter.parallel import ordered_map


def split_by_time(
    source: TableSource, max_bad_share: float, watch: ProgressReporter, crew: Crew | None = None
) -> tuple[TableSource, TimeSplit | UserTimeSplit]:
    """Detect the time format of a log and fit the split by time.

    Args:
        source: The log.
        max_bad_share: Largest accepted share of unreadable rows, 0 to 1.
        watch: Receives the progress.
        crew: Reads the units of the log; None for threads of this process.

    Returns:
        The source with the detected time format, and the split.

    Raises:
        DataError: There are no rows, too many unreadable rows, ambiguous times, or too few distinct times.
    """
    if source.schema.time_format is not None:
        source = replace(source, reading=TimeReading(format=source.schema.time_format))
    split, seen = _pass(source, max_bad_share, watch, crew)
    if source.schema.time_format is None:
        assert source.schema.time is not None
        reading = seen.settle(source.schema.time, max_bad_share)
        if reading != source.reading:
            source = replace(source, reading=reading)
            split, _ = _pass(source, max_bad_share, watch, crew)
    if isinstance(split, DataError):
        raise split
    return source, split


@dataclass(frozen=True)
class _ChunkTimes:
    """Times of a chunk, float64 [rows], with the keys of users, the observed formats and the unreadable rows."""

    times: NDArray[np.float64]
    users: NDArray[np.uint64] | None
    seen: TimesSeen
    rejected: list[Rejection]


@dataclass(frozen=True)
class _TimeReader:
    """Reader of the time column only."""

    column: TableSource
    name: str

    def itself(self) -> "_TimeReader":
        """Return this reader, for `Crew.call`, which expects a function that makes the shared object of a worker."""
        return self

    def chunk(self, chunk: TableChunk) -> _ChunkTimes:
        """Read the times of a chunk."""
        batch = self.column.parse(chunk)
        assert batch.times is not None
        per_user = self.column.schema.split.per_user
        users = batch.columns.keys[_user_column(self.column.schema)] if per_user else None
        return _ChunkTimes(batch.times, users, see_times(chunk, self.name), batch.rejected)


def _unit_times(reader: _TimeReader, unit: Unit) -> tuple[list[_ChunkTimes], int]:
    """Read the times of all chunks of a unit; return these and the size of the unit in the file in bytes."""
    budget = Budget.of_settings()
    return [reader.chunk(chunk) for chunk in reader.column.chunks(unit, budget)], budget.file_bytes


def _all_times(reader: _TimeReader, crew: Crew | None, budget: Budget) -> Iterator[tuple[Unit, _ChunkTimes]]:
    """Yield the times of each chunk, read by threads or by a crew; `budget` counts the bytes read."""
    units = reader.column.units()
    if crew is None:
        chunks = ((unit, chunk) for unit in units for chunk in reader.column.chunks(unit, budget))
        yield from ordered_map(lambda pair: (pair[0], reader.chunk(pair[1])), chunks)
        return
    ask = on_crew(crew, reader.itself, _unit_times)
    for unit, (found, file_bytes) in ordered_map(lambda unit: (unit, ask(unit)), units, workers=crew.count):
        budget.file_bytes += file_bytes
        yield from ((unit, times) for times in found)


def _pass(
    source: TableSource, max_bad_share: float, watch: ProgressReporter, crew: Crew | None
) -> tuple[TimeSplit | UserTimeSplit | DataError, TimesSeen]:
    """Read the time column once; return the split, or the error that prevents the split, and the observed formats."""
    bad, good, seen, lines = Tally(), 0, TimesSeen(), LineCount()
    budget, of_users = Budget.of_settings(), list[tuple[NDArray[np.uint64], NDArray[np.float64]]]()
    name = source.schema.time
    assert name is not None

    def times() -> Iterator[NDArray[np.float64]]:
        nonlocal good, seen
        for unit, found in _all_times(_TimeReader(only_time(source), name), crew, budget):
            budget.rows_read += len(found.times) + len(found.rejected)
            watch.read(TIMES, budget)
            bad.add(lines.numbered(found.rejected, unit))
            good += len(found.times)
            seen += found.seen
            if found.users is not None:
                of_users.append((found.users, found.times))
            yield found.times

    try:
        split = TimeSplit.fit(times(), source.schema.split)
        if of_users:
            users, moments = (np.concatenate(arrays) for arrays in zip(*of_users, strict=True))
            column = _user_column(source.schema)
            return UserTimeSplit.fit(column, users, moments, source.schema.split), seen
        return split, seen
    except TooFewTimesError as too_few:
        return _first_fault(too_few, source.name, bad, good, max_bad_share), seen


def _user_column(schema: Schema) -> int:
    return [field.field for field in schema.categorical].index(schema.user or "")


def _first_fault(too_few: DataError, name: str, bad: Tally, good: int, max_bad_share: float) -> DataError:
    """Return the most basic error: too many unreadable rows, else no rows, else too few distinct times."""
    try:
        bad.check(good, max_bad_share)
    except DataError as error:
        return error
    return too_few if good else no_rows(name)
