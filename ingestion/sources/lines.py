"""Sources of text files in which each line is one row, other than CSV."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from shunter.errors import ColumnError, DataError
from shunter.ingestion.batch import Rejection
from shunter.ingestion.sources.files import read_blocks
from shunter.ingestion.sources.guard import Budget
from shunter.ingestion.sources.tabular import TableChunk, TableSource


@dataclass(frozen=True)
class LineSource(TableSource):
    """Source of files of lines; a subclass turns lines into columns."""

    def header(self, path: Path) -> list[str]:
        """Return the names of the columns in the first block of a file."""
        lines = next(read_blocks(path), b"").split(b"\n")
        return self.parse_lines([line for line in lines if line.strip()])[0].columns

    def tables(
        self, path: Path, columns: Sequence[str], budget: Budget, start: int = 0, end: int | None = None
    ) -> Iterator[TableChunk]:
        """Read some columns of a file in chunks of rows, see `TableSource.tables`; a column absent there is null."""
        before = 0
        for text in read_blocks(path, budget=budget, start=start, end=end):
            lines = text.split(b"\n")[:-1]
            present = np.array([index for index, line in enumerate(lines) if line.strip()], np.int64)
            table, bad = self.parse_lines([lines[index] for index in present])
            numbers = present + before + 1
            rejected = [Rejection(str(path), int(numbers[row]), reason) for row, reason in sorted(bad.items())]
            for name in columns:
                if name in table.columns and table[name].dtype in (pl.Object, pl.Struct):
                    raise ColumnError(name, path, "holds values of several types: leave it out of the schema")
            rows = table.select(name if name in table.columns else pl.lit(None).alias(name) for name in columns)
            yield TableChunk(path, rows, np.delete(numbers, list(bad)), rejected)
            before += len(lines)

    def parse_lines(self, lines: list[bytes]) -> tuple[pl.DataFrame, dict[int, str]]:
        """Parse lines that are not blank.

        Returns:
            Columns of the readable lines, and the fault of each other line by its index.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class JsonSource(LineSource):
    """Source of JSON lines; a key of an object within an object is a column with a dotted name."""

    identity: str = "json"

    def parse_lines(self, lines: list[bytes]) -> tuple[pl.DataFrame, dict[int, str]]:
        """Parse one object a line, see `LineSource.parse_lines`."""
        try:
            return flattened(pl.read_ndjson(io.BytesIO(b"\n".join(lines)), infer_schema_length=None)), {}
        except pl.exceptions.PolarsError:
            return _parse_each(lines)


def _parse_each(lines: list[bytes]) -> tuple[pl.DataFrame, dict[int, str]]:
    """Parse one object a line where a line is no object, or a key has values of several types, which become texts."""
    objects, bad = [], {}
    for index, line in enumerate(lines):
        try:
            found = json.loads(line)
            if not isinstance(found, dict):
                raise ValueError("no object")
            objects.append(found)
        except ValueError:
            bad[index] = f"{line[:20]!r} is no JSON object"
    try:
        return flattened(pl.DataFrame(objects, infer_schema_length=None, strict=False)), bad
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise DataError(
            f"The lines of JSON mix values that have no common type ({error}): write them again."
        ) from error


def flattened(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with the fields of each struct as columns with dotted names."""
    while structs := [name for name, dtype in table.schema.items() if isinstance(dtype, pl.Struct)]:
        table = table.with_columns(
            pl.col(name).struct.rename_fields([f"{name}.{field.name}" for field in table.schema[name].fields])  # pyright: ignore[reportAttributeAccessIssue] - a struct
            for name in structs
        ).unnest(structs)
    return table
