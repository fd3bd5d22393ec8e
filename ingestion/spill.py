"""Rows on disk between the two passes: the source is read, and its text taken apart, only once."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from shunter.ingestion.batch import Bag, Columns, RawBatch

_KEYS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class SpilledBatch:
    """What is kept of a batch.

    Attributes:
        labels: float32 [rows] or [rows, labels], as in the batch.
        parts: int8 [rows], the split of each row.
        columns: The features.
        weights: float32 [rows]; None when there are none.
        times: float64 [rows], as in the batch; None when there are none.
    """

    labels: NDArray[np.float32]
    parts: NDArray[np.int8]
    columns: Columns
    weights: NDArray[np.float32] | None = None
    times: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class _Block:
    """Where an array lies in the file."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SpilledRows:
    """Batches in a temporary file, which can be read by whoever sees it.

    They are read and not mapped into memory: mapped pages would count as memory of the process.

    Attributes:
        path: The file.
        batches: Of each batch: labels, parts, numeric, keys, then keys, offsets and weights of each multi-valued
            column (no number where its values have none), then weights of the rows, then their times.
        is_weighted: Whether the rows have weights.
        is_timed: Whether they have times.
    """

    path: Path
    batches: list[list[_Block]]
    is_weighted: bool
    is_timed: bool = False

    def read(self) -> Iterator[SpilledBatch]:
        """Read all batches, in the order in which they were written."""
        with self.path.open("rb") as stream:
            for blocks in self.batches:
                labels, parts, numeric, keys, *bags = (_read(stream, block) for block in blocks)
                times = bags.pop() if self.is_timed else None
                weights = bags.pop() if self.is_weighted else None
                of_bags = zip(bags[::3], bags[1::3], bags[2::3], strict=True)
                own = [Bag(ids, offsets, given if len(given) else None) for ids, offsets, given in of_bags]
                columns = Columns(numeric, keys, own)
                yield SpilledBatch(labels, parts, columns, weights, times)

    def training_keys(self, column: int) -> Iterator[NDArray[np.uint64]]:
        """Read the keys of one categorical column in the training rows of each batch."""
        with self.path.open("rb") as stream:
            for blocks in self.batches:
                training = _read(stream, blocks[1]) == 0
                single = blocks[3].shape[0]
                if column < single:
                    yield _read(stream, blocks[3], row=column)[training]
                else:
                    keys, offsets = (_read(stream, block) for block in blocks[4 + 3 * (column - single) :][:2])
                    yield Bag(keys, offsets).select(training).keys


class SpillWriter:
    """Appends batches to a temporary file; a context manager that completes it.

    Attributes:
        rows: What it has written.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, behind what others have written into it."""
        self._stream = path.open("ab")
        self._stream.seek(0, os.SEEK_END)
        self.rows = SpilledRows(path, [], is_weighted=False)

    def __enter__(self) -> Self:
        """Complete the file on the way out."""
        return self

    def __exit__(self, *details: object) -> None:
        """Complete the file."""
        self._stream.close()

    def append(self, batch: RawBatch, parts: NDArray[np.int8]) -> None:
        """Write a batch and the split of each of its rows."""
        columns = batch.columns
        arrays = [batch.labels, parts, columns.numeric, columns.keys]
        none = np.empty(0, np.float32)
        arrays += [
            array
            for bag in columns.bags
            for array in (bag.keys, bag.offsets, none if bag.weights is None else bag.weights)
        ]
        arrays += [array for array in (batch.weights, batch.times) if array is not None]
        self.rows = replace(self.rows, is_weighted=batch.weights is not None, is_timed=batch.times is not None)
        self.rows.batches.append([self._write(array) for array in arrays])

    def _write(self, array: NDArray[Any]) -> _Block:
        block = _Block(self._stream.tell(), array.dtype, array.shape)
        self._stream.write(np.ascontiguousarray(array).data)
        return block


class Spill:
    """The rows of a whole log in temporary files; a context manager that deletes them.

    Attributes:
        units: The rows of its parts, in their order.
    """

    def __init__(self, directory: Path) -> None:
        """Keep the files in `directory`."""
        self._directory = directory
        self.units: list[SpilledRows] = []

    def __enter__(self) -> Self:
        """Delete the files on the way out."""
        return self

    def __exit__(self, *details: object) -> None:
        """Delete the files."""
        for path in self._directory.glob("*.spill"):
            path.unlink()

    @property
    def is_weighted(self) -> bool:
        """Whether the rows have weights."""
        return any(unit.is_weighted for unit in self.units)

    @property
    def is_timed(self) -> bool:
        """Whether the rows have times."""
        return any(unit.is_timed for unit in self.units)

    def read(self) -> Iterator[SpilledBatch]:
        """Read all batches, in their order."""
        return (batch for unit in self.units for batch in unit.read())

    def training_keys(self, column: int) -> Iterator[NDArray[np.uint64]]:
        """Read the keys of one categorical column in the training rows, many at once.

        Args:
            column: Index among the categorical columns, single-valued ones first.
        """
        waiting: list[NDArray[np.uint64]] = []
        for keys in (keys for unit in self.units for keys in unit.training_keys(column)):
            waiting.append(keys)
            if sum(map(len, waiting)) > _KEYS_AT_ONCE:
                yield np.concatenate(waiting)
                waiting = []
        if waiting:
            yield np.concatenate(waiting)


def spill_path(directory: Path) -> Path:
    """The file of this process among those of a log."""
    return directory / f"{socket.gethostname()}.{os.getpid()}.spill"


def _read(stream: BinaryIO, block: _Block, row: int | None = None) -> NDArray[Any]:
    """The array, or one row of a two-dimensional one."""
    shape = block.shape if row is None else block.shape[1:]
    size = int(np.prod(shape)) * block.dtype.itemsize
    stream.seek(block.offset + (row or 0) * size)
    return np.frombuffer(stream.read(size), block.dtype).reshape(shape)
