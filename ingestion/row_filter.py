"""Pass over the columns whose values are counted, before the log is read: `min_rows` and `k_core` of the schema."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from shunter.ingestion.batch import MISSING_KEY, Source
from shunter.ingestion.encoding.frequent import Keys, fit_filter
from shunter.ingestion.parallel import ordered_map
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.days import DaysSource
from shunter.ingestion.sources.parts import PartsSource
from shunter.ingestion.sources.tabular import TableSource, only_time


def with_row_filter(source: Source) -> Source:
    """Return the source with the filter of its schema, after one pass over the counted columns.

    Raises:
        DataError: The source cannot be read, or no row is left.
    """
    schema = source.schema
    if not schema.counted_columns:
        return source
    if isinstance(source, DaysSource):
        found = fit_filter(schema, (keys for day in source.days for keys in _keys(day.source, schema)), source.name)
        days = (replace(day, source=replace(day.source, row_filter=found)) for day in source.days)  # pyright: ignore[reportArgumentType, reportCallIssue] - tables
        return replace(source, days=tuple(days))
    if isinstance(source, PartsSource):
        tables = (source.training, *(table for _, table in source.others))
        found = fit_filter(schema, (keys for table in tables for keys in _keys(table, schema)), source.name)
        others = tuple((part, replace(table, row_filter=found)) for part, table in source.others)  # pyright: ignore[reportCallIssue]
        return replace(source, training=replace(source.training, row_filter=found), others=others)  # pyright: ignore[reportCallIssue]
    assert isinstance(source, TableSource), "only tables have these keys in their schema"
    return replace(source, row_filter=fit_filter(schema, _keys(source, schema), source.name))


def _keys(source: Source, schema: Schema) -> Iterable[Keys]:
    """Yield the keys of the counted columns of a log, a missing key for a column that it lacks."""
    assert isinstance(source, TableSource)
    only = only_time(source)
    only = replace(only, schema=only.schema.without_time())
    names = [field.column for field in only.schema.categorical]

    def keys_of(chunk: object) -> Keys:
        found = dict(zip(names, only.parse(chunk).columns.keys, strict=True))  # pyright: ignore[reportArgumentType]
        rows = len(next(iter(found.values())))
        absent = np.full(rows, MISSING_KEY, np.uint64)
        return np.stack([found.get(column, absent) for column in schema.counted_columns])

    return ordered_map(keys_of, only.chunks())
