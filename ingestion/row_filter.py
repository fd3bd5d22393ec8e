"""Passes over a few columns before ingestion, for `sessions`, `min_rows`, `k_core` and `negatives`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from shunter.errors import DataError
from shunter.ingestion.batch import MISSING_KEY, RawBatch, Source
from shunter.ingestion.encoding.frequent import Keys, fit_filter
from shunter.ingestion.encoding.negatives import fit_sampler
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.days import DaysSource, arrange
from shunter.ingestion.sources.parts import PartsSource
from shunter.ingestion.sources.tabular import TableSource, only_time
from shunter.parallel import ordered_map


def with_sessions(source: Source, max_bad_share: float) -> Source:
    """Return the source with the sessions of its schema; each day of a `DaysSource` gets separate sessions.

    Raises:
        DataError: The source cannot be read, or its times are unclear or have no known unit.
    """
    if not source.schema.session_columns:
        return source

    is_of_days = isinstance(source, DaysSource)

    def found(table: TableSource) -> TableSource:
        if not table.schema.session_columns:  # a day without users
            return table
        sessions, reading = table.find_sessions(max_bad_share)
        if is_of_days and sessions.rows_of_other_days > max_bad_share * sessions.rows:
            raise DataError(
                f"{table.name} of the {sessions.rows_of_other_days:,} rows of {sessions.rows:,} belong to "
                "another day in UTC, and their sessions may be in other files: write one UTC day to each "
                "file, or leave `sessions` out."
            )
        return replace(table, sessions=sessions, reading=reading)

    if is_of_days:
        return replace(source, days=tuple(replace(day, source=found(day.source)) for day in source.days))  # pyright: ignore[reportArgumentType] - tables
    assert isinstance(source, TableSource), "given parts are refused"
    return found(source)


def count_sessions(source: Source) -> int:
    """Return the number of sessions of a source that `with_sessions` returned."""
    if not source.schema.session_columns:
        return 0
    return sum(table.sessions.count for table in tables_of(source) if table.sessions is not None)


def with_row_filter(source: Source) -> Source:
    """Fit the row filter (`min_rows`, `k_core`) in one pass over the counted columns, and add the filter to the source.

    Raises:
        DataError: The source cannot be read, or no row is left.
    """
    schema = source.schema
    if not schema.counted_columns:
        return source
    found = fit_filter(schema, (keys for table in tables_of(source) for keys in _keys(table, schema)), source.name)
    return _on_tables(source, row_filter=found)


def with_negatives(source: Source) -> Source:
    """Fit the sampler of negatives in one pass over the item columns; return the source with the sampler.

    Raises:
        DataError: The source cannot be read, or there are no items to draw.
    """
    schema = source.schema
    if schema.negatives is None:
        return source
    batches = (batch for table in tables_of(source) for batch in _items(table, schema))
    sampler = fit_sampler(schema, batches, _items_alone(schema), source.name)
    return _on_tables(source, negatives=sampler)


def tables_of(source: Source) -> tuple[TableSource, ...]:
    """Return the `TableSource` parts of a source: its days, its splits, or the source itself."""
    if isinstance(source, DaysSource):
        tables = tuple(day.source for day in source.days)
    elif isinstance(source, PartsSource):
        tables = (source.training, *(table for _, table in source.others))
    else:
        tables = (source,)
    assert all(isinstance(table, TableSource) for table in tables), (
        "only tables have the keys min_rows, k_core and negatives"
    )
    return tables  # pyright: ignore[reportReturnType]


def _on_tables(source: Source, **changes: Any) -> Source:
    """Return a copy of the source in which `changes` replace attributes of each `TableSource`."""
    if isinstance(source, DaysSource):
        days = (replace(day, source=replace(day.source, **changes)) for day in source.days)  # pyright: ignore[reportArgumentType, reportCallIssue] - tables
        return replace(source, days=tuple(days))
    if isinstance(source, PartsSource):
        others = tuple((part, replace(table, **changes)) for part, table in source.others)  # pyright: ignore[reportCallIssue]
        return replace(source, training=replace(source.training, **changes), others=others)  # pyright: ignore[reportCallIssue]
    assert isinstance(source, TableSource)
    return replace(source, **changes)


def _items_alone(schema: Schema) -> Schema:
    """Return the schema reduced to the item columns and the columns that a filter counts."""
    assert schema.negatives is not None
    of_item = {schema.item, *schema.negatives.columns}
    features = {
        "numeric": tuple(name for name in schema.numeric if name in of_item),
        "categorical": tuple(
            field for field in schema.categorical if field.field in {*of_item, *schema.counted_columns}
        ),
        "multi_valued": (),
        "sequences": (),
    }
    return schema.without_time().model_copy(update=features)


def _items(table: TableSource, schema: Schema) -> Iterable[RawBatch]:
    """Yield the rows of a log with the item columns only; columns that the log lacks have missing values."""
    wanted = _items_alone(schema)
    only = replace(table, schema=_items_alone(table.schema), negatives=None)
    names = (wanted.numeric, [field.field for field in wanted.categorical], ())

    def read(chunk: Any) -> RawBatch:
        batch = only.parse(chunk)
        return replace(batch, columns=arrange(batch.columns, only.schema, *names))

    return ordered_map(read, only.chunks())


def _keys(source: Source, schema: Schema) -> Iterable[Keys]:
    """Yield the keys of the counted columns of a log; columns that the log lacks have missing keys."""
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
