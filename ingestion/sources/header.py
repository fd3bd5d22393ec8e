"""Columns of a file and their kinds, from the header and the first rows alone."""

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl

from shunter.errors import DataError
from shunter.ingestion.batch import Source
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.sources.criteo import CriteoSource
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.parquet import Kind, flat_types, kind_of, open_parquet
from shunter.ingestion.sources.recognise import first_lines
from shunter.ingestion.sources.tabular import ParquetSource, TableChunk, TableSource
from shunter.requests.source import CSV, PARQUET


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
    """Return the share of the first rows, 0 to 1, in which a numeric column holds a value that is no number."""
    for table in (chunk.table for chunk in source.chunks() if isinstance(chunk, TableChunk) and len(chunk.table)):
        if isinstance(table.schema[column], pl.List | pl.Array | pl.Struct):
            return 1.0
        texts, invalid = read.as_text(table[column])
        plain = read.in_usual_form(texts, source.schema, is_number=True)
        [(_, unreadable)] = read.amount_reader(source.schema.value_form)([plain])
        return float(np.mean(unreadable | invalid)) if len(texts) else 0.0
    return 0.0


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
        kinds: dict[str, Kind] = {}
        for column in chunk.table.get_columns():
            if column.dtype not in (pl.Binary, pl.String):
                kinds[column.name] = kind_of(column.to_arrow().type)
                continue
            texts, invalid = read.as_text(column)
            [(values, bad)] = read.amounts_of([read.in_usual_form(texts, source.schema, is_number=True)])
            is_text = (bad | invalid).any()
            kinds[column.name] = "text" if is_text else "empty" if np.isnan(values).all() else "number"
        return kinds
    return dict.fromkeys(names, "empty")


def varying_columns(source: Source) -> dict[str, tuple[str, ...]]:
    """Return the columns of the schema that differ between files, each with its kinds in order of the files.

    Only Parquet files have kinds in their headers; in other files a column is `text` or `absent`. An empty column has
    no kind.
    """
    if not isinstance(source, TableSource) or len(source.paths) == 1:
        return {}
    found: dict[str, dict[str, None]] = {name: {} for name in source.schema.read_columns}
    for path in source.paths:
        is_typed = isinstance(source, ParquetSource)
        kinds = flat_kinds(path) if is_typed else dict.fromkeys(source.names(path), "text")
        for name, of_column in found.items():
            kind = kinds.get(name, "absent")
            if kind != "empty":
                of_column[kind] = None
    return {name: tuple(kinds) for name, kinds in found.items() if len(kinds) > 1}
