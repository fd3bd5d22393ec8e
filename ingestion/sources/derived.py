"""Columns that a schema derives from the columns of a file: joined, exploded and unpacked columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shunter.errors import DataError
from shunter.ingestion.batch import TableChunk
from shunter.ingestion.encoding import columns as read
from shunter.ingestion.encoding.canonical import canonical_texts
from shunter.ingestion.fields import Explode, Join, Unpack
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.addresses import path_beside
from shunter.ingestion.sources.guard import Budget, check_paths
from shunter.ingestion.sources.recognise import general_format
from shunter.requests.source import FORMATS

_ROW, _KEY, _FOUND = "\0row", "\0key", "\0found"


class Derived:
    """Derivation of columns for the files of one log."""

    def __init__(self, schema: Schema, log: Path) -> None:
        self._schema = schema
        self._joined = [JoinedTable(join, log) for join in schema.joins]

    def names(self, header: Sequence[str]) -> list[str]:
        """Return the columns of a file and the columns derived from them."""
        found = list(header)
        explode = self._schema.explode
        if explode is not None and explode.column in found:
            found += [name for name in (explode.item, explode.label) if name]
        for table in self._joined:
            found += [name for name in table.columns if name not in found]
        packed = tuple(one.prefix for one in self._schema.unpack if one.column in found)
        return found + [name for name in self._schema.read_columns if name.startswith(packed) and name not in found]

    def needed(self, header: Sequence[str], wanted: Sequence[str]) -> list[str]:
        """Return the columns of a file that have to be read for the wanted columns."""
        known, names = set(header), [*wanted]
        names += [one.column for one in self._unpacked(header, wanted)]
        for table in self._needed_tables(header, names):
            names += table.join.key
        explode = self._schema.explode
        if explode is not None:
            names += [explode.column]
        return [name for name in dict.fromkeys(names) if name in known]

    def add(self, chunk: TableChunk, header: Sequence[str], wanted: Sequence[str]) -> TableChunk:
        """Return a chunk with the wanted columns, and for each join the number of rows whose key its table lacks."""
        table, lines = chunk.table, chunk.lines
        if self._schema.explode is not None:
            table, lines = _exploded(table, lines, self._schema.explode)
        unpacked = self._unpacked(header, wanted)
        names = [*wanted, *(one.column for one in unpacked)]
        needed = self._needed_tables(header, names)
        unmatched = []
        for joined in self._joined:
            table, missed = joined.add_to(table, names) if joined in needed else (table, 0)
            unmatched.append(missed)
        for one in unpacked:
            table = _unpacked(table, one, [name for name in wanted if name.startswith(one.prefix)])
        return replace(chunk, table=table.select(wanted), lines=lines, unmatched=tuple(unmatched))

    def _unpacked(self, header: Sequence[str], wanted: Sequence[str]) -> list[Unpack]:
        absent = [name for name in wanted if name not in header]
        return [one for one in self._schema.unpack if any(name.startswith(one.prefix) for name in absent)]

    def _needed_tables(self, header: Sequence[str], wanted: Sequence[str]) -> list["JoinedTable"]:
        absent = set(wanted) - set(header)
        return [table for table in self._joined if absent & set(table.columns)]


@dataclass(frozen=True)
class JoinedTable:
    """Table of a join, read once."""

    join: Join
    log: Path

    @cached_property
    def path(self) -> Path:
        """Path of the joined table."""
        return path_beside(self.log, self.join.file)

    @cached_property
    def columns(self) -> list[str]:
        """Columns that the joined table adds to the log."""
        names = [name for name in self._source.header(self.path) if name not in self.join.keys_of_table]
        return [*names, *([self.join.found] if self.join.found else [])]

    def add_to(self, table: pl.DataFrame, wanted: Sequence[str]) -> tuple[pl.DataFrame, int]:
        """Return the rows with the wanted columns of the table, and the number of rows whose key the table lacks."""
        keys = _keys(table, self.join.key)
        taken = [name for name in wanted if name in self._rows.columns and name not in table.columns]
        right = self._rows.select(*keys.columns, _FOUND, *taken)
        joined = keys.join(right, on=keys.columns, how="left", maintain_order="left").drop(keys.columns)
        found = joined[_FOUND].fill_null(value=False)
        joined = joined.drop(_FOUND)
        if self.join.found and self.join.found in wanted:
            joined = joined.with_columns(found.cast(pl.Int8).alias(self.join.found))
        return table.hstack(joined), 0 if self.join.found else int((~found).sum())

    @cached_property
    def _rows(self) -> pl.DataFrame:
        """First row of each key, with the keys as canonical texts."""
        header, join = self._source.header(self.path), self.join
        read.check_columns(self.path, header, join.keys_of_table, "of the join")
        once = [name for name in dict.fromkeys(header) if header.count(name) == 1]
        chunks = [chunk.table for chunk in self._source.tables(self.path, once, Budget.of_settings())]
        if not chunks:
            raise DataError(f"The joined table {self.path} has no rows: give a table with rows.")
        table = pl.concat(chunks, how="diagonal_relaxed")
        rows = pl.DataFrame([read.as_text(column)[0] for column in table.get_columns()])
        keys = _keys(rows, join.keys_of_table)
        rows = rows.drop(join.keys_of_table).hstack(keys).with_columns(pl.lit(value=True).alias(_FOUND))
        return rows.unique(keys.columns, keep="first", maintain_order=True)

    @cached_property
    def _source(self) -> Any:  # a `TableSource`, which imports this module
        join = self.join
        check_paths([self.path])
        if not self.path.exists():
            raise DataError(
                f"The table {self.path}, which the schema joins, is missing: add the file, or leave the join out."
            )
        form = {"columns": join.columns, "delimiter": join.delimiter, "encoding": join.encoding, "quotes": join.quotes}
        schema = Schema.model_validate({"label": join.keys_of_table[0], "numeric": ["\0"], **form})
        return FORMATS.load(join.format or general_format(self.path))(self.path.stem, schema, (self.path,))


def _keys(table: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return the key columns as canonical texts, so that 5, 5.0 and "5" are one key."""
    columns = [canonical_texts(read.as_text(table[name])[0], "value") for name in names]
    return pl.DataFrame([column.alias(f"{_KEY}{index}") for index, column in enumerate(columns)])


def _exploded(table: pl.DataFrame, lines: np.ndarray, explode: Explode) -> tuple[pl.DataFrame, np.ndarray]:
    """Return a table with one row for each impression, and the line number in the file of each new row."""
    impressions = read.as_text(table[explode.column])[0].str.strip_chars().str.split(explode.separator)
    table = table.with_columns(impressions.alias(explode.column), pl.Series(_ROW, lines))
    table = table.explode(explode.column).filter(pl.col(explode.column).str.len_bytes() > 0)
    impression = pl.col(explode.column)
    if explode.label is None:
        added = [impression.alias(explode.item)]
    else:
        added = [
            impression.str.extract(r"^(.*)-[^-]*$").alias(explode.item),
            impression.str.extract(r"-([^-]*)$").alias(explode.label),
        ]
    table = table.with_columns(added)
    return table.drop(_ROW), table[_ROW].to_numpy()


def _unpacked(table: pl.DataFrame, unpack: Unpack, wanted: Sequence[str]) -> pl.DataFrame:
    """Return the table with a column of lists for each wanted field."""
    between, behind_field, before_value = unpack.separators
    rows = pl.DataFrame({_ROW: np.arange(len(table)), "text": read.as_text(table[unpack.column])[0]})
    flat = rows.with_columns(pl.col("text").str.split(between)).explode("text").drop_nulls()
    parts = pl.col("text").str.splitn(behind_field, 2).struct
    flat = flat.select(_ROW, field=parts.field("field_0"), rest=parts.field("field_1")).drop_nulls()
    parts = pl.col("rest").str.splitn(before_value, 2).struct
    flat = flat.with_columns(feature=parts.field("field_0"), value=parts.field("field_1").fill_null("1"))
    for name in wanted:
        field, what = name.removeprefix(unpack.prefix), "feature"
        if field.endswith("_value"):
            field, what = field.removesuffix("_value"), "value"
        of_field = (
            flat.filter(pl.col("field") == field).group_by(_ROW, maintain_order=True).agg(pl.col(what).alias(name))
        )
        table = table.hstack(rows.select(_ROW).join(of_field, on=_ROW, how="left", maintain_order="left").select(name))
    return table
