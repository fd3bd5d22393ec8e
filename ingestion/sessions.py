"""Pass over user and time before a log is read, for `sessions` of the schema."""

from dataclasses import replace

from shunter.errors import DataError
from shunter.ingestion.batch import Source, TableChunk
from shunter.ingestion.encoding.sessions import UserTimes, fit_sessions, user_times
from shunter.ingestion.encoding.times import TimesSeen, see_all
from shunter.ingestion.parallel import ordered_map
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.tabular import TableSource, see_times
from shunter.ingestion.time_format import TimeReading


def with_sessions(source: Source, max_bad_share: float) -> Source:
    """Return the source with the sessions of its schema and the format of its times.

    Args:
        source: The log.
        max_bad_share: Largest accepted share of unreadable times, 0 to 1.

    Raises:
        DataError: The source cannot be read, or its times are unclear or have no known unit.
    """
    schema = source.schema
    if schema.sessions is None:
        return source
    assert isinstance(source, TableSource), "only tables have these keys in their schema"
    assert schema.time is not None, "the schema checks it"
    if schema.time_format is not None:
        source = replace(source, reading=TimeReading(format=schema.time_format))
    pieces, seen = _pass(source)
    if schema.time_format is None and (reading := seen.settle(schema.time, max_bad_share)) != source.reading:
        source = replace(source, reading=reading)
        pieces, _ = _pass(source)
    if not pieces:
        raise DataError(f"{source.name} holds no row: give a log with rows.")
    return replace(source, sessions=fit_sessions(schema, pieces, seen.microseconds_per_unit(source.reading)))


def _pass(source: TableSource) -> tuple[list[UserTimes], TimesSeen]:
    """Read the columns of user and time once."""
    schema = source.schema
    assert schema.sessions is not None
    assert schema.time is not None
    columns, budget = [schema.sessions.by or "", schema.time], Budget.of_settings()

    def read(chunk: TableChunk) -> tuple[UserTimes, TimesSeen]:
        return user_times(chunk, schema, source.reading), see_times(chunk, columns[1])

    chunks = (chunk for path in source.paths for chunk in source.rows(path, columns, budget))
    found = list(ordered_map(read, chunks))
    return [piece for piece, _ in found], see_all([seen for _, seen in found])
