"""Columns of a file and their kinds, from the header and the first rows alone."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from shunter.errors import DataError
from shunter.ingestion.batch import Source
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.fields import TextForm
from shunter.ingestion.sources.criteo import CriteoSource
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.parquet import Kind, flat_types, kind_of, open_parquet
from shunter.ingestion.sources.recognise import first_lines
from shunter.ingestion.sources.tabular import ParquetSource, TableChunk, TableSource
from shunter.requests.formats import CSV, PARQUET


def column_kinds(source: Source) -> dict[str, Kind]:
    """Return the common columns of all files of a log with their kinds; empty for Criteo, whose columns are fixed.

    Args:
        source: The log; only the text form of its schema is used.

    Raises:
        DataError: A file is empty or cannot be read.
    """
    if isinstance(source, CriteoSource):
        return {}
    kinds = [_kinds_of(path, source) for path in source.paths]
    found: dict[str, Kind] = {name: kind for name, kind in kinds[0].items() if all(name in other for other in kinds)}
    for other in kinds:  # a file without values does not determine the kind
        found |= {name: other[name] for name, kind in found.items() if kind == "empty"}
    return found


def readable_columns(path: Path, source: TableSource) -> tuple[list[str], dict[str, str]]:
    """Return the readable columns of a file, and the reason by name of each unreadable column."""
    if isinstance(source, ParquetSource):
        with open_parquet(path) as (file, _):
            types = flat_types(file.schema_arrow)
        names = [name for name, _ in types]
        nested = {name: f"it holds {str(kind)[:60]}" for name, kind in types if kind_of(kind) == "other"}
    else:
        names, nested = source.header(path), {}
    left_out = nested | {name: f"{count} columns have this name" for name, count in Counter(names).items() if count > 1}
    return [name for name in names if name not in left_out], left_out


def has_rows(path: Path, data_format: str) -> bool:
    """Return True if a file holds at least one row besides the header."""
    if data_format == PARQUET:
        with open_parquet(path) as (file, _):
            return file.metadata.num_rows > 0
    return sum(map(bool, first_lines(path))) > (data_format == CSV)


def unreadable_share(source: Source, column: str) -> float:
    """Return the share of the first rows, 0 to 1, in which a numeric column holds a value that is no number.

    Args:
        source: Log whose schema names the column as numeric.
        column: Name of the column.
    """
    for table in _first_tables(source):
        if isinstance(table.schema[column], pl.List | pl.Array | pl.Struct):
            return 1.0
        texts, invalid = read.as_text(table[column])
        plain = read.in_usual_form(texts, source.schema, is_number=True)
        [(_, unreadable)] = read.amount_reader(source.schema.value_form)([plain])
        return float(np.mean(unreadable | invalid)) if len(texts) else 0.0
    return 0.0


def _first_tables(source: Source) -> Iterator[pl.DataFrame]:
    return (chunk.table for chunk in source.chunks() if isinstance(chunk, TableChunk) and len(chunk.table))


def flat_kinds(path: Path) -> dict[str, Kind]:
    """Return the kinds of the columns of a Parquet file; fields of a struct have dotted names."""
    with open_parquet(path) as (file, _):
        return {name: kind_of(kind) for name, kind in flat_types(file.schema_arrow)}


def _kinds_of(path: Path, source: Source) -> dict[str, Kind]:
    if path.stat().st_size == 0:
        raise DataError(f"The file {path} is empty: give a file with rows.")
    if isinstance(source, ParquetSource):
        return flat_kinds(path)
    assert isinstance(source, TableSource)
    names, _ = readable_columns(path, source)
    for chunk in source.tables(path, names, Budget.of_settings()):
        return {column.name: _kind_of_values(column, source.schema) for column in chunk.table.get_columns()}
    return dict.fromkeys(names, "empty")


def _kind_of_values(column: pl.Series, form: TextForm) -> Kind:
    if column.dtype not in (pl.Binary, pl.String):
        return kind_of(column.to_arrow().type)
    texts, invalid = read.as_text(column)
    [(values, bad)] = read.amounts_of([read.in_usual_form(texts, form, is_number=True)])
    if (bad | invalid).any():
        return "text"
    return "empty" if np.isnan(values).all() else "number"
