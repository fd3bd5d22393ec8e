"""Rows of embedding tables in a file, some of which lie in slots of memory: the tiers, whoever looks the rows up.

    file, mapped          weight [rows, dim], adagrad_sum [rows]          slow, as large as the disk
        | fetch   ^ write back
        v         |
    slots                 weight [slots, dim], adagrad_sum [slots]        memory of an in-memory kernel

A row that nobody has asked for yet need not be there: if it can be drawn by itself
(`shunter.models.embeddings.initial_weights`), it is drawn into its slot when it is first touched, and comes into the
file when it is written back.

The files have no name: they vanish with the process, however it ends. What survives is a checkpoint, from which the
tables are written anew.
"""

import mmap
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shunter.errors import HardwareError, RequestError
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.embeddings.initial_weights import RowsByThemselves
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.embeddings.slots import Admission, SlotMap

# Rows after which the pages of the files are given back: 64 MiB at most, for Linux maps 64 KiB around what is read, of
# the weights and of the sums.
MOST_TOUCHED_ROWS = 512
ROWS_BEGUN_AT_ONCE = 1 << 14  # where all rows are drawn into the file, for which there is little memory
BROKEN = "Rows cannot be moved to and from the file of the embedding tables"
REMEDY = "make room on its disk or see to it, and train again, which goes on from the last checkpoint."


@dataclass(frozen=True)
class StartBlock:
    """Rows of a table that lie one after the other in a file.

    Attributes:
        first: Number of the first, counted through the file.
        rows: How many.
        first_row: Number of the first within the table.
        table: Draws them.
    """

    first: int
    rows: int
    first_row: int
    table: RowsByThemselves


class StartingRows:
    """The rows of a file that can be drawn each by itself.

    Attributes:
        blocks: Where they lie, in the order of the file.
    """

    def __init__(self) -> None:
        self.blocks: list[StartBlock] = []

    def draw(self, rows: np.ndarray, dim: int) -> np.ndarray:
        """Draw some rows, float32 `[rows, dim]`.

        Args:
            rows: Their numbers, counted through the file; all lie in a block.
            dim: Numbers of a row.
        """
        block_of_row = np.searchsorted([block.first for block in self.blocks], rows, side="right") - 1
        drawn = np.empty((len(rows), dim), np.float32)
        for number in np.unique(block_of_row).tolist():
            block, here = self.blocks[number], np.flatnonzero(block_of_row == number)
            drawn[here] = block.table.draw(rows[here] - block.first + block.first_row)
        return drawn


class RowTiers:
    """Rows in a file and in slots.

    What is in the file lags behind the slots; `flush` brings it up to the last trained batch.

    Args:
        rows: Rows of all tables that lie here.
        dim: Width of every row.
        cache: Batches in work, how often rows are asked for, and the place of the file.
        weight: `[slots, dim]` float32, memory of the kernel that trains them.
        adagrad_sum: `[slots]` float32, the optimiser's state likewise.

    Attributes:
        weight: `[rows, dim]` float32, in the file.
        adagrad_sum: `[rows]` float32, in the file.
        slots: How many rows lie in memory at most.
        counts: What was moved.
        lock: Held by whoever calls `bring`, `begin`, `leave_window` or `forget`; the others take it themselves.

    Raises:
        HardwareError: There is no room for the file.
    """

    def __init__(self, rows: int, dim: int, cache: EmbeddingCache, weight: Tensor, adagrad_sum: Tensor) -> None:
        self._files = tuple(_MappedFile(floats, cache.directory) for floats in (rows * dim, rows))
        self.weight = self._files[0].tensor.view(rows, dim)
        self.adagrad_sum = self._files[1].tensor
        # Same memory, but to autograd not the same tensor: rows arrive between a forward and its backward pass.
        self._fast_weight, self._fast_sum = (torch.from_numpy(one.numpy()) for one in (weight, adagrad_sum))
        self.slots = len(weight)
        self._map = SlotMap(rows, self.slots, cache.window_batches, cache.row_levels)
        self._starting = StartingRows()
        self._touched_rows = 0
        self._file_is_current = self._is_whole = True
        self.counts = CacheCounts(rows=self.slots, row_bytes=4 * (dim + 1))
        self.lock = threading.Lock()

    @torch.no_grad()
    def bring(self, rows: np.ndarray, *, counted: bool = True) -> np.ndarray:
        """Bring the rows of the next batch into slots, and return these.

        Args:
            rows: The batch's rows, each once.
            counted: Whether it counts among the batches of the training.

        Raises:
            TooLargeError: The rows of the batches in work are more than there are slots; then nothing has changed.
            HardwareError: The file cannot be read or written.
        """
        started = time.perf_counter()
        admission = self._map.admit(rows)
        self._move(admission)
        if counted:
            self.counts.hits += len(rows) - len(admission.arriving)
            self.counts.misses += len(admission.arriving)
            self.counts.written_back += len(admission.leaving)
            self.counts.transfer_seconds += time.perf_counter() - started
        return admission.slots

    def start_anew(self) -> None:
        """Nothing is there before rows are written, or said to be drawn when they are first touched (`add_start`)."""
        self._starting = StartingRows()

    def add_start(self, table: RowsByThemselves, *, first: int, rows: int, first_row: int = 0) -> None:
        """Let some rows be drawn when they are first touched; see `StartBlock`. No slot holds one of them."""
        self._starting.blocks.append(StartBlock(first, rows, first_row, table))
        self._map.note_unbegun(first, first + rows)

    def as_drawn(self) -> None:
        """Let all rows that can be drawn by themselves be as they were drawn, and empty the slots."""
        with self.lock:
            self.forget()
            for block in self._starting.blocks:
                self._map.note_unbegun(block.first, block.first + block.rows)

    @torch.no_grad()
    def begin(self, rows: np.ndarray) -> None:
        """Draw those of some rows into the file that it lacks; they may repeat.

        It is up to date (`flush`): a row in a slot that it lacks was never trained.

        Raises:
            HardwareError: The file cannot be written.
        """
        if not self._map.unbegun:
            return
        new = np.unique(rows[~self._map.have_begun(rows)])
        if not len(new):
            return
        index = torch.from_numpy(new)
        try:
            self.weight.index_copy_(0, index, torch.from_numpy(self._starting.draw(new, self.weight.shape[1])))
            self.adagrad_sum.index_fill_(0, index, 0.0)
        except OSError as error:
            raise HardwareError(f"{BROKEN} ({error.strerror or error}): {REMEDY}") from error
        self._map.note_begun(new)
        self.note_touched(len(new))

    def begin_all(self) -> None:
        """Bring the file up to date, and draw all rows into it that it lacks."""
        self.flush()
        rows = len(self.weight)
        with self.lock:
            for first in range(0, rows, ROWS_BEGUN_AT_ONCE) if self._map.unbegun else ():
                self.begin(np.arange(first, min(first + ROWS_BEGUN_AT_ONCE, rows)))

    def note_written(self, rows: np.ndarray) -> None:
        """Others have written distinct rows into the file."""
        with self.lock:
            self._map.note_begun(rows)

    def note_all_written(self) -> None:
        """Others have written all rows into the file."""
        with self.lock:
            self._map.note_all_begun()

    def starts(self, first: int, rows: int) -> "BlockStarts | None":
        """Which of some rows have begun; None where all have."""
        return BlockStarts(self, first, rows) if self._map.unbegun else None

    def have_begun(self, first: int, last: int) -> Tensor:
        """Whether the file holds each row of a range: bool."""
        with self.lock:
            return torch.from_numpy(self._map.have_begun(slice(first, last)))

    def leave_window(self) -> None:
        """Let go of all batches so far: nobody works on their slots any more."""
        self._map.leave_window()

    def note_trained(self) -> None:
        """The slots are about to change: the file lags behind from here on."""
        self._file_is_current = False

    @torch.no_grad()
    def flush(self) -> None:
        """Write all cached rows to the file, unless nothing was trained since; between two steps, not within one.

        Until the next step the file stays as it is, though rows may leave the cache: they write the same values again.
        """
        if self._file_is_current:
            return
        with self.lock:
            self._check_whole()
            rows, slots = (torch.from_numpy(part.astype(np.int64)) for part in self._map.residents())
            self.write_back(rows, slots)
            self._map.note_begun(rows.numpy())
            self._file_is_current = True

    def forget(self) -> None:
        """Empty the slots without writing them back: the file was written by others."""
        self._map.clear()
        self._file_is_current = self._is_whole = True

    def note_touched(self, rows: int) -> None:
        """Give the pages of the files back now and then: they count as this process's memory while they are mapped."""
        self._touched_rows += rows
        if self._touched_rows >= MOST_TOUCHED_ROWS:
            self.leave_pages()

    def leave_pages(self) -> None:
        """Give the pages of the files back."""
        for file in self._files:
            file.leave_pages()
        self._touched_rows = 0

    def _move(self, admission: Admission) -> None:
        """Write leaving rows back and fetch arriving ones.

        Raises:
            HardwareError: The file cannot be read or written; then what is in memory is no state to save any more, for
                a slot may hold a row other than that of the book.
        """
        self._check_whole()
        self._is_whole = False
        as_index = {name: torch.from_numpy(part.astype(np.int64)) for name, part in vars(admission).items()}
        try:
            self.write_back(as_index["leaving"], as_index["leaving_slots"])
            rows, slots = as_index["arriving"], as_index["arriving_slots"]
            if admission.is_new.any():
                new, is_old = np.flatnonzero(admission.is_new), torch.from_numpy(np.flatnonzero(~admission.is_new))
                self._draw(admission.arriving[new], slots[torch.from_numpy(new)])
                rows, slots = rows[is_old], slots[is_old]
            self._fast_weight.index_copy_(0, slots, self.weight.index_select(0, rows))
            self._fast_sum.index_copy_(0, slots, self.adagrad_sum.index_select(0, rows))
        except OSError as error:
            raise HardwareError(f"{BROKEN} ({error.strerror or error}): {REMEDY}") from error
        self._is_whole = True
        self.note_touched(len(rows))

    def _draw(self, rows: np.ndarray, slots: Tensor) -> None:
        """Draw rows into their slots."""
        drawn = self._starting.draw(rows, self.weight.shape[1])
        self._fast_weight.index_copy_(0, slots, torch.from_numpy(drawn))
        self._fast_sum.index_fill_(0, slots, 0.0)

    def _check_whole(self) -> None:
        if not self._is_whole:
            raise HardwareError(f"{BROKEN}: {REMEDY}")

    def write_back(self, rows: Tensor, slots: Tensor) -> None:
        """Write rows from their slots to the file."""
        self.weight.index_copy_(0, rows, self._fast_weight.index_select(0, slots))
        self.adagrad_sum.index_copy_(0, rows, self._fast_sum.index_select(0, slots))
        self.note_touched(len(rows))


class BlockStarts:
    """Which rows of a block in the file have begun (`shunter.models.embeddings.shards.RowStarts`)."""

    def __init__(self, tiers: RowTiers, first: int, rows: int) -> None:
        self._tiers, self._first, self._rows = tiers, first, rows

    def keep_begun(self, wanted: Tensor) -> None:
        """Of a bool of each row, let those be false that have not begun."""
        assert len(wanted) == self._rows, "all rows of the block"
        for start in range(0, self._rows, ROWS_BEGUN_AT_ONCE):
            part = wanted[start : start + ROWS_BEGUN_AT_ONCE]
            part &= self._tiers.have_begun(self._first + start, self._first + start + len(part))

    def begin(self, rows: Tensor) -> None:
        """Draw rows that have not begun, counted from the block's first."""
        with self._tiers.lock:
            self._tiers.begin(rows.numpy() + self._first)

    def note_written(self, rows: Tensor) -> None:
        """Whole rows were written, counted from the block's first."""
        self._tiers.note_written(rows.numpy() + self._first)


def check_cache(cache: EmbeddingCache, device: torch.device) -> None:
    """Refuse what cannot be.

    Raises:
        RequestError: The cache has no row, or the device is not the CPU.
    """
    if cache.rows < 1:
        raise RequestError(f"A cache of {cache.rows} embedding rows is no cache: use at least 1.")
    if device.type != "cpu":
        raise RequestError(
            f"Embedding tables in a file are trained on the device cpu and not on {device}: leave out "
            f"--embedding-memory there."
        )


class _MappedFile:
    """A new file of zeros without a name, mapped.

    Args:
        floats: How many numbers it holds.
        directory: Its folder; None is the system's for temporary files.

    Attributes:
        tensor: `[floats]` float32, in the file.

    Raises:
        HardwareError: The folder cannot be written to or has no room.
    """

    def __init__(self, floats: int, directory: Path | None) -> None:
        self._mapped = _map_file(4 * floats, directory)
        self.tensor = torch.frombuffer(self._mapped, dtype=torch.float32)

    def leave_pages(self) -> None:
        """Let the system have the pages: what was written is in its cache of the file, from where it is read again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)


def _map_file(size: int, directory: Path | None) -> mmap.mmap:
    """Map a new file of zeros without a name, of `size` bytes."""
    folder = directory or Path(tempfile.gettempdir())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):  # a mapped file that found the disk full later would kill the process
                os.posix_fallocate(file.fileno(), 0, size)
            mapped = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise HardwareError(
            f"The folder {folder} cannot take the {size:,} bytes of an embedding file ({error.strerror}): "
            f"make room or name another one."
        ) from error
    # Rows are small and far apart, so that reading ahead of a page would only displace what memory holds of the file.
    if hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)
    return mapped
