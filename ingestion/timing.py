"""Splitting by time: a pass over the time column alone says how its values are read and where to cut."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ingestion.batch import RawBatch
from ingestion.encoding.split import TimeSplit, TooFewTimesError
from ingestion.encoding.times import TimesSeen
from ingestion.parallel import ordered_map
from ingestion.sources.tabular import CsvSource, ParquetSource, TableChunk, only_time, see_times
from ingestion.survey import no_rows
from ingestion.time_format import TimeReading
from ingestion.writer import Tally
from shunter.errors import DataError

Tabular = CsvSource | ParquetSource


def split_by_time(source: Tabular, max_bad_share: float) -> tuple[Tabular, TimeSplit]:
    """Find out how the times are written, and cut by them.

    Returns:
        The source, which now knows how its times are read, and the split.

    Raises:
        DataError: There are no rows, too many bad ones, or times that are unclear or too few to split by.
    """
    if source.schema.time_format is not None:
        source = replace(source, reading=TimeReading(format=source.schema.time_format))
    split, seen = _pass(source, max_bad_share)
    if source.schema.time_format is None:
        assert source.schema.time is not None
        reading = seen.settle(source.schema.time, max_bad_share)
        if reading != source.reading:
            source = replace(source, reading=reading)
            split, _ = _pass(source, max_bad_share)
    if isinstance(split, DataError):
        raise split
    return source, split


def _pass(source: Tabular, max_bad_share: float) -> tuple[TimeSplit | DataError, TimesSeen]:
    """Read the time column once: where to cut, or why that cannot be said, and what the values look like."""
    column, bad, good, seen = only_time(source), Tally(), 0, TimesSeen()
    name = source.schema.time
    assert name is not None

    def work(chunk: TableChunk) -> tuple[RawBatch, TimesSeen]:
        return column.parse(chunk), see_times(chunk, name)

    def times() -> Iterator[NDArray[np.float64]]:
        nonlocal good, seen
        for batch, of_chunk in ordered_map(work, column.chunks()):
            assert batch.times is not None
            bad.add(batch.rejected)
            good += len(batch.times)
            seen += of_chunk
            yield batch.times

    try:
        return TimeSplit.fit(times(), source.schema.split), seen
    except TooFewTimesError as too_few:
        return _first_fault(too_few, source.name, bad, good, max_bad_share), seen


def _first_fault(too_few: DataError, name: str, bad: Tally, good: int, max_bad_share: float) -> DataError:
    """Why the rows cannot be read comes first: without them there are no times."""
    try:
        bad.check(good, max_bad_share)
    except DataError as error:
        return error
    return too_few if good else no_rows(name)
