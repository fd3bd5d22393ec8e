"""What a source hands to an ingestion: raw columns of some thousand rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.schema import Schema

MISSING_KEY = 0
# Of a unit: some tenths of a second of work, so that all processors end at nearly the same time.
UNIT_BYTES = 16 << 20


@dataclass(frozen=True)
class Rejection:
    """One row that could not be read.

    Attributes:
        source: The file.
        line: Line of a text file in which the row begins, row of a Parquet file; counted from 1.
        reason: Fault of the row, in words.
    """

    source: str
    line: int
    reason: str


@dataclass(frozen=True)
class Bag:
    """A multi-valued column: row i holds `keys[offsets[i]:offsets[i + 1]]`.

    Attributes:
        keys: uint64 [values].
        offsets: int64 [rows + 1].
        weights: float32 [values], what each counts; None where all count alike.
    """

    keys: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None

    def select(self, rows: NDArray[np.bool_]) -> "Bag":
        """The bags of the rows where `rows` is true."""
        lengths = np.diff(self.offsets)
        chosen = np.repeat(rows, lengths)
        weights = None if self.weights is None else self.weights[chosen]
        return Bag(self.keys[chosen], np.concatenate([[0], np.cumsum(lengths[rows])]), weights)

    def latest(self, length: int) -> "Bag":
        """The same with at most `length` keys a row, the last ones."""
        lengths = np.diff(self.offsets)
        surplus = np.maximum(lengths - length, 0)
        if not surplus.any():
            return self
        rank = np.arange(len(self.keys)) - np.repeat(self.offsets[:-1], lengths)
        kept = rank >= np.repeat(surplus, lengths)
        return Bag(self.keys[kept], np.concatenate([[0], np.cumsum(lengths - surplus)]))


@dataclass(frozen=True)
class Columns:
    """The features of some rows before encoding, in the order of the schema.

    A key stands for a categorical value: the same value always has the same 64-bit key, and `MISSING_KEY` is no value.

    Attributes:
        numeric: float32 [columns, rows]; NaN where there is no value.
        keys: uint64 [single-valued categorical columns, rows].
        bags: One for each multi-valued column, then one for each sequence.
    """

    numeric: NDArray[np.float32]
    keys: NDArray[np.uint64]
    bags: list[Bag]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.numeric.shape[1]

    def select(self, rows: NDArray[np.bool_]) -> "Columns":
        """The rows where `rows` is true."""
        return Columns(self.numeric[:, rows], self.keys[:, rows], [bag.select(rows) for bag in self.bags])


@dataclass(frozen=True)
class RawBatch:
    """Some rows of a source, and those among them that were rejected.

    Attributes:
        labels: float32 [rows], 0 or 1; [rows, labels] where the schema names several, NaN for one that is missing.
        columns: The features.
        times: float64 [rows]; None when the schema names no time column.
        users: uint64 [built sequences, rows], keys of the columns that their `by` names; None when there are none.
        rejected: Rows that are in none of the arrays.
        weights: float32 [rows], not negative; None when the schema names no column of weights.
        parts: int8 [rows], the part that the log itself gives each row; None when it gives none.
    """

    labels: NDArray[np.float32]
    columns: Columns
    times: NDArray[np.float64] | None = None
    rejected: list[Rejection] = field(default_factory=list)
    users: NDArray[np.uint64] | None = None
    weights: NDArray[np.float32] | None = None
    parts: NDArray[np.int8] | None = None

    @property
    def main_labels(self) -> NDArray[np.float32]:
        """Of the main task, float32 [rows]."""
        return self.labels if self.labels.ndim == 1 else self.labels[:, 0]


@dataclass(frozen=True)
class Unit:
    """A part of a log.

    Attributes:
        path: The file; None where rows are generated.
        start: Where it begins: a byte of a text, a group of rows of Parquet, a chunk that is generated.
        end: Where it ends; None for the end of the file.
        lines_before: Rows of the file before it, which the numbers of its own rows do not count; None where they are
            lines that nobody has counted.
        owner: Number of the source that reads it, among several in one.
    """

    path: Path | None
    start: int = 0
    end: int | None = None
    lines_before: int | None = 0
    owner: int = 0


class Source(Protocol):
    """A click log. `chunks` does the sequential reading, `parse` the work: threads may parse several chunks at once."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        ...

    @property
    def schema(self) -> Schema:
        """Which column is what."""
        ...

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files that are read; empty when the rows are generated."""
        ...

    @property
    def identity(self) -> str:
        """What decides about the rows besides the bytes of `paths` and the schema."""
        ...

    def units(self, unit_bytes: int = UNIT_BYTES) -> Iterator[Unit]:
        """Parts of about so many bytes, in order, each of which can be read by itself."""
        ...

    def chunks(self, unit: Unit | None = None, budget: Any = None) -> Iterator[Any]:
        """Read the source from its start, or one unit, in pieces of some MiB whose rows are numbered from there.

        Args:
            unit: One of `units`; None for everything.
            budget: The `shunter.ingestion.sources.guard.Budget` that counts what is read; None for one of its own.
        """
        ...

    def parse(self, chunk: Any) -> RawBatch:
        """Turn one piece into columns."""
        ...
