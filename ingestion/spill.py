"""Temporary storage of parsed rows on disk between the two passes, so that the source is parsed only once."""

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
    """Batch of rows read back from the spill file.

    Attributes:
        labels: float32 [rows] or [rows, labels], as in `RawBatch`.
        parts: int8 [rows], index of the split of each row.
        columns: Features of the rows.
        weights: float32 [rows]; None for rows without weights.
        times: float64 [rows], as in `RawBatch`; None for rows without times.
    """

    labels: NDArray[np.float32]
    parts: NDArray[np.int8]
    columns: Columns
    weights: NDArray[np.float32] | None = None
    times: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class _Block:
    """Location of an array in the spill file, with the offset in bytes."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SpilledRows:
    """Index of the batches in a temporary file, which any process with access to the file can read.

    The file is read instead of memory-mapped, since mapped pages would count as memory of the process.

    Attributes:
        path: Path of the file.
        batches: Array locations of each batch: labels, parts, numeric, keys, then keys, offsets and weights of each
            multi-valued column (an empty array without weights), then weights and times of the rows, if any.
        is_weighted: Whether the rows have weights.
        is_timed: Whether the rows have times.
    """

    path: Path
    batches: list[list[_Block]]
    is_weighted: bool
    is_timed: bool = False

    def read(self) -> Iterator[SpilledBatch]:
        """Yield all batches in the order of writing."""
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
        """Yield, for each batch, the keys of one categorical column in the training rows, uint64 [values]."""
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
    """Writer that appends batches to a temporary file; a context manager that closes the file.

    Attributes:
        rows: Index of the batches written so far.
    """

    def __init__(self, path: Path) -> None:
        """Open the file for appending after earlier content."""
        self._stream = path.open("ab")
        self._stream.seek(0, os.SEEK_END)
        self.rows = SpilledRows(path, [], is_weighted=False)

    def __enter__(self) -> Self:
        """Return the writer; leaving the context closes the file."""
        return self

    def __exit__(self, *details: object) -> None:
        """Close the spill file."""
        self._stream.close()

    def append(self, batch: RawBatch, parts: NDArray[np.int8]) -> None:
        """Write a batch and the split of each of its rows to the spill file."""
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
        blocks = []
        for array in arrays:
            blocks.append(_Block(self._stream.tell(), array.dtype, array.shape))
            self._stream.write(np.ascontiguousarray(array).data)
        self.rows.batches.append(blocks)


class Spill:
    """Rows of a whole log in temporary files; a context manager that deletes the files.

    Attributes:
        units: Spilled rows of the log's units, in order.
    """

    def __init__(self, directory: Path) -> None:
        """Create an empty spill with files in `directory`."""
        self._directory = directory
        self.units: list[SpilledRows] = []

    def __enter__(self) -> Self:
        """Return the spill; leaving the context deletes the files."""
        return self

    def __exit__(self, *details: object) -> None:
        """Delete the spill files."""
        for path in self._directory.glob("*.spill"):
            path.unlink()

    @property
    def is_weighted(self) -> bool:
        """Return True if the rows have weights."""
        return any(unit.is_weighted for unit in self.units)

    @property
    def is_timed(self) -> bool:
        """Return True if the rows have times."""
        return any(unit.is_timed for unit in self.units)

    def read(self) -> Iterator[SpilledBatch]:
        """Yield all batches in the order of the log."""
        return (batch for unit in self.units for batch in unit.read())

    def training_keys(self, column: int) -> Iterator[NDArray[np.uint64]]:
        """Yield the keys of one categorical column in the training rows, in arrays of about `_KEYS_AT_ONCE` keys."""
        waiting: list[NDArray[np.uint64]] = []
        for keys in (keys for unit in self.units for keys in unit.training_keys(column)):
            waiting.append(keys)
            if sum(map(len, waiting)) > _KEYS_AT_ONCE:
                yield np.concatenate(waiting)
                waiting = []
        if waiting:
            yield np.concatenate(waiting)


def spill_path(directory: Path) -> Path:
    """Return the path of this process's spill file, named by host and process id."""
    return directory / f"{socket.gethostname()}.{os.getpid()}.spill"


def _read(stream: BinaryIO, block: _Block, row: int | None = None) -> NDArray[Any]:
    """Read an array, or one row of a two-dimensional array."""
    shape = block.shape if row is None else block.shape[1:]
    size = int(np.prod(shape)) * block.dtype.itemsize
    stream.seek(block.offset + (row or 0) * size)
    return np.frombuffer(stream.read(size), block.dtype).reshape(shape)
