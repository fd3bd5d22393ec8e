"""What columns a file has and of what kind, from its header and first rows alone."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from shunter.errors import DataError
from shunter.ingestion.batch import Source
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.sources.criteo import CriteoSource
from shunter.ingestion.sources.files import open_binary
from shunter.ingestion.sources.parquet import open_parquet
from shunter.ingestion.sources.recognise import csv_delimiter
from shunter.ingestion.sources.tabular import TableChunk

Kind = Literal["number", "text", "time", "list", "other"]
_LOOKED_AT_BYTES = 1 << 20


def column_kinds(source: Source) -> dict[str, Kind]:
    """The columns that every file of a log has, with their kinds; empty where the format leaves no choice.

    Args:
        source: A log; its schema does not matter.

    Raises:
        DataError: A file is empty or cannot be read.
    """
    if isinstance(source, CriteoSource):
        return {}
    kinds = [_kinds_of(path, source) for path in source.paths]
    return {name: kind for name, kind in kinds[0].items() if all(name in other for other in kinds)}


def unreadable_share(source: Source, column: str) -> float:
    """Share of the first rows in which a column that should hold numbers holds something else.

    Args:
        source: A log whose schema names the column as numeric.
        column: Its name.
    """
    for table in _first_tables(source):
        if isinstance(table.schema[column], pl.List | pl.Array | pl.Struct):
            return 1.0
        texts, invalid = read.as_text(table[column])
        return float(np.mean(read.numbers(texts)[1] | invalid)) if len(texts) else 0.0
    return 0.0


def _first_tables(source: Source) -> Iterator[pl.DataFrame]:
    return (chunk.table for chunk in source.chunks() if isinstance(chunk, TableChunk) and len(chunk.table))


def _kinds_of(path: Path, source: Source) -> dict[str, Kind]:
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty: give a file with rows.")
    if source.identity == "parquet":
        with open_parquet(path) as (file, _):
            schema = pl.from_arrow(file.schema_arrow.empty_table())
        assert isinstance(schema, pl.DataFrame)
        return {name: _kind(dtype) for name, dtype in schema.schema.items()}
    delimiter = csv_delimiter(path, source.schema.columns, source.schema.delimiter)
    with open_binary(path) as stream:
        head = stream.read(_LOOKED_AT_BYTES)
    if len(head) == _LOOKED_AT_BYTES:  # the last line may not be whole
        head = head[: head.rfind(b"\n") + 1]
    table = pl.read_csv(
        io.BytesIO(head), separator=delimiter, infer_schema_length=None, ignore_errors=True, truncate_ragged_lines=True
    )
    return {name: _kind(dtype) for name, dtype in table.schema.items()}


def _kind(dtype: pl.DataType) -> Kind:
    if dtype.is_numeric() or dtype == pl.Boolean:
        return "number"
    if dtype in {pl.String, pl.Binary, pl.Categorical, pl.Enum}:
        return "text"
    if dtype.is_temporal():
        return "time"
    return "list" if isinstance(dtype, pl.List | pl.Array) else "other"
