"""Rows on disk between the two passes: the source is read, and its text taken apart, only once."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.ingest.batch import Bag, Batch, Columns


@dataclass(frozen=True)
class SpilledBatch:
    """What is kept of a batch.

    Attributes:
        labels: float32 [rows].
        parts: int8 [rows], the split of each row.
        columns: the features.
    """

    labels: NDArray[np.float32]
    parts: NDArray[np.int8]
    columns: Columns


class Spill:
    """A temporary file of batches, each a sequence of arrays in the format of numpy."""

    def __init__(self, path: Path) -> None:
        """Open a new file at `path`."""
        self._path = path
        self._stream = path.open("wb")
        self._batches = 0
        self._bags = 0

    def append(self, batch: Batch, parts: NDArray[np.int8]) -> None:
        """Write a batch and the split of each of its rows."""
        bags = batch.columns.bags
        arrays = [batch.labels, parts, batch.columns.numeric, batch.columns.keys]
        for array in (*arrays, *(array for bag in bags for array in (bag.keys, bag.offsets))):
            np.lib.format.write_array(self._stream, array, allow_pickle=False)
        self._batches += 1
        self._bags = len(bags)

    def read(self) -> Iterator[SpilledBatch]:
        """Read all batches, in the order in which they were written."""
        self._stream.close()
        with self._path.open("rb") as stream:
            for _ in range(self._batches):
                labels, parts, numeric, keys, *bags = (
                    np.lib.format.read_array(stream, allow_pickle=False) for _ in range(4 + 2 * self._bags)
                )
                columns = Columns(numeric, keys, [Bag(*pair) for pair in zip(bags[::2], bags[1::2], strict=True)])
                yield SpilledBatch(labels, parts, columns)

    def remove(self) -> None:
        """Delete the file."""
        self._stream.close()
        self._path.unlink()
