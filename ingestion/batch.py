"""Data types between a source and an ingestion: raw columns of some thousand rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.ingestion.schema import Schema

MISSING_KEY = 0
# Size of a unit: some tenths of a second of work, so that all cores finish at nearly the same time.
UNIT_BYTES = 16 << 20


@dataclass(frozen=True)
class Rejection:
    """Row that could not be read.

    Attributes:
        source: Name of the file.
        line: First line of the row in a text file, or row number in a Parquet file; counted from 1.
        reason: Fault of the row as text.
    """

    source: str
    line: int
    reason: str


@dataclass(frozen=True)
class Bag:
    """Multi-valued column in which row i holds `keys[offsets[i]:offsets[i + 1]]`.

    Attributes:
        keys: uint64 [values].
        offsets: int64 [rows + 1].
        weights: float32 [values], weight of each value; None if all values have the same weight.
    """

    keys: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None

    def select(self, rows: NDArray[np.bool_]) -> "Bag":
        """Return the bags of the rows where the mask `rows`, bool [rows], is true."""
        lengths = np.diff(self.offsets)
        chosen = np.repeat(rows, lengths)
        weights = None if self.weights is None else self.weights[chosen]
        return Bag(self.keys[chosen], np.concatenate([[0], np.cumsum(lengths[rows])]), weights)

    def latest(self, length: int) -> "Bag":
        """Return the bag with only the last `length` keys of each row."""
        lengths = np.diff(self.offsets)
        surplus = np.maximum(lengths - length, 0)
        if not surplus.any():
            return self
        rank = np.arange(len(self.keys)) - np.repeat(self.offsets[:-1], lengths)
        kept = rank >= np.repeat(surplus, lengths)
        return Bag(self.keys[kept], np.concatenate([[0], np.cumsum(lengths - surplus)]))


@dataclass(frozen=True)
class Columns:
    """Features of a batch of rows before encoding, in the order of the schema.

    A key stands for a categorical value: equal values have the same 64-bit key, and `MISSING_KEY` is a missing value.

    Attributes:
        numeric: float32 [columns, rows]; NaN for a missing value.
        keys: uint64 [single-valued categorical columns, rows].
        bags: One bag for each multi-valued column, then one for each sequence.
    """

    numeric: NDArray[np.float32]
    keys: NDArray[np.uint64]
    bags: list[Bag]

    @property
    def rows(self) -> int:
        """Number of rows of the batch."""
        return self.numeric.shape[1]

    def select(self, rows: NDArray[np.bool_]) -> "Columns":
        """Return the rows where the mask `rows`, bool [rows], is true."""
        return Columns(self.numeric[:, rows], self.keys[:, rows], [bag.select(rows) for bag in self.bags])


@dataclass(frozen=True)
class RawBatch:
    """Batch of rows of a source, with the rejected rows.

    Attributes:
        labels: float32 [rows], 0 or 1; [rows, labels] if the schema names several labels, NaN for a missing label.
        columns: Features of the rows.
        times: float64 [rows]; None if the schema names no time column.
        rejected: Unreadable rows, which are not in the arrays.
        users: uint64 [built sequences, rows], keys of the `by` column of each sequence; None without built sequences.
        weights: float32 [rows], not negative; None if the schema names no weight column.
        parts: int8 [rows], the split that the log itself names for each row; None if the log names none.
        unmatched: Rows without a partner, for each join of the schema; empty without joins.
        left_out: Number of readable rows that the schema excludes, which are not in the arrays.
    """

    labels: NDArray[np.float32]
    columns: Columns
    times: NDArray[np.float64] | None = None
    rejected: list[Rejection] = field(default_factory=list)
    users: NDArray[np.uint64] | None = None
    weights: NDArray[np.float32] | None = None
    parts: NDArray[np.int8] | None = None
    unmatched: tuple[int, ...] = ()
    left_out: int = 0

    def select(self, rows: NDArray[np.bool_]) -> "RawBatch":
        """Return the rows where the mask `rows`, bool [rows], is true."""
        of_rows = {name: getattr(self, name) for name in ("labels", "times", "weights", "parts")}
        return replace(
            self,
            columns=self.columns.select(rows),
            users=None if self.users is None else self.users[:, rows],
            **{name: values if values is None else values[rows] for name, values in of_rows.items()},
        )

    @property
    def main_labels(self) -> NDArray[np.float32]:
        """Labels of the main task, float32 [rows]."""
        return self.labels if self.labels.ndim == 1 else self.labels[:, 0]


@dataclass(frozen=True)
class TableChunk:
    """Chunk of rows of a file.

    Attributes:
        path: The file.
        table: Rows with the original column types.
        lines: Line number of each row, int64 [rows].
        rejected: Lines that could not be parsed as rows.
        unmatched: Rows without a partner, for each join of the schema; empty without joins.
        left_out: Number of rows that `where` of the schema does not choose, which are not in the table.
    """

    path: Path
    table: pl.DataFrame
    lines: NDArray[np.int64]
    rejected: list[Rejection]
    unmatched: tuple[int, ...] = ()
    left_out: int = 0


@dataclass(frozen=True)
class Unit:
    """Part of a log that can be read independently.

    Attributes:
        path: File of the unit; None for generated rows.
        start: First byte of a text file, first row group of a Parquet file, or first generated chunk.
        end: End of the unit, exclusive, in the same units as `start`; None for the end of the file.
        lines_before: Number of rows of the file before the unit, which is added to row numbers within the unit. None if
            the rows before the unit are not counted yet.
        owner: Index of the source that reads the unit, for a source made of several sources.
    """

    path: Path | None
    start: int = 0
    end: int | None = None
    lines_before: int | None = 0
    owner: int = 0


class Source(Protocol):
    """Click log with sequential reading in `chunks`; threads may call `parse` for several chunks at once."""

    @property
    def name(self) -> str:
        """Name of the log as the user gives it."""
        ...

    @property
    def schema(self) -> Schema:
        """Schema of the log: the roles of its columns."""
        ...

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files of the log; empty for generated rows."""
        ...

    @property
    def identity(self) -> str:
        """Text that identifies the rows together with the bytes of `paths` and the schema."""
        ...

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Yield units of about `unit_bytes` bytes in order; each unit can be read independently."""
        ...

    def chunks(self, unit: Unit | None = None, budget: Any = None) -> Iterator[Any]:
        """Read the whole source or one unit in chunks of some MiB; row numbers start at the beginning of the unit.

        Args:
            unit: One of `units`; None for the whole source.
            budget: The `shunter.ingestion.sources.guard.Budget` that counts the bytes read; None for a new budget.
        """
        ...

    def parse(self, chunk: Any) -> RawBatch:
        """Turn one chunk into a batch of columns."""
        ...
