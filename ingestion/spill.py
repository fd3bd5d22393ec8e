"""Rows on disk between the two passes: the source is read, and its text taken apart, only once."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ingestion.batch import Bag, Columns, RawBatch

_KEYS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class SpilledBatch:
    """What is kept of a batch.

    Attributes:
        labels: float32 [rows] or [rows, labels], as in the batch.
        parts: int8 [rows], the split of each row.
        columns: The features.
        weights: float32 [rows]; None when there are none.
    """

    labels: NDArray[np.float32]
    parts: NDArray[np.int8]
    columns: Columns
    weights: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class _Block:
    """Where an array lies in the file."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Spill:
    """A temporary file of batches that can be read again as a whole or column by column; deleted on the way out.

    It is read and not mapped into memory: mapped pages would count as memory of the process.

    Attributes:
        is_weighted: Whether the rows have weights.
    """

    def __init__(self, path: Path) -> None:
        """Open a new file at `path`."""
        self._path = path
        self._stream = path.open("w+b")
        # Of each batch: labels, parts, numeric, keys, then keys and offsets of each multi-valued column, then weights.
        self._batches: list[list[_Block]] = []
        self.is_weighted = False

    def __enter__(self) -> Self:
        """Delete the file on the way out."""
        return self

    def __exit__(self, *details: object) -> None:
        """Delete the file."""
        self._stream.close()
        self._path.unlink()

    def append(self, batch: RawBatch, parts: NDArray[np.int8]) -> None:
        """Write a batch and the split of each of its rows."""
        columns = batch.columns
        arrays = [batch.labels, parts, columns.numeric, columns.keys]
        arrays += [array for bag in columns.bags for array in (bag.keys, bag.offsets)]
        arrays += [] if batch.weights is None else [batch.weights]
        self.is_weighted = batch.weights is not None
        self._batches.append([self._write(array) for array in arrays])
        self._stream.flush()

    def read(self) -> Iterator[SpilledBatch]:
        """Read all batches, in the order in which they were written."""
        for blocks in self._batches:
            labels, parts, numeric, keys, *bags = map(self._read, blocks)
            weights = bags.pop() if self.is_weighted else None
            columns = Columns(numeric, keys, [Bag(*pair) for pair in zip(bags[::2], bags[1::2], strict=True)])
            yield SpilledBatch(labels, parts, columns, weights)

    def training_keys(self, column: int) -> Iterator[NDArray[np.uint64]]:
        """Read the keys of one categorical column in the training rows, many at once.

        Args:
            column: Index among the categorical columns, single-valued ones first.
        """
        waiting: list[NDArray[np.uint64]] = []
        for blocks in self._batches:
            waiting.append(self._training_keys(blocks, column))
            if sum(map(len, waiting)) > _KEYS_AT_ONCE:
                yield np.concatenate(waiting)
                waiting = []
        if waiting:
            yield np.concatenate(waiting)

    def _training_keys(self, blocks: list[_Block], column: int) -> NDArray[np.uint64]:
        training = self._read(blocks[1]) == 0
        single = blocks[3].shape[0]
        if column < single:
            return self._read(blocks[3], row=column)[training]
        keys, offsets = map(self._read, blocks[4 + 2 * (column - single) :][:2])
        return Bag(keys, offsets).select(training).keys

    def _write(self, array: NDArray[Any]) -> _Block:
        block = _Block(self._stream.tell(), array.dtype, array.shape)
        self._stream.write(np.ascontiguousarray(array).data)
        return block

    def _read(self, block: _Block, row: int | None = None) -> NDArray[Any]:
        """The array, or one row of a two-dimensional one."""
        shape = block.shape if row is None else block.shape[1:]
        size = int(np.prod(shape)) * block.dtype.itemsize
        # At a place of its own: several threads read at once.
        return np.frombuffer(
            _read_at(self._stream.fileno(), block.offset + (row or 0) * size, size), block.dtype
        ).reshape(shape)


def _read_at(descriptor: int, offset: int, size: int) -> bytes:
    """So many bytes of a file from a place on."""
    data = os.pread(descriptor, size, offset)
    if len(data) < size:  # one call gives 2 GiB at most
        parts, found = [data], len(data)
        while found < size and (part := os.pread(descriptor, size - found, offset + found)):
            parts.append(part)
            found += len(part)
        data = b"".join(parts)
    return data
