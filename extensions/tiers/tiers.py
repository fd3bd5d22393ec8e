"""Two tiers of embedding rows: all rows in a file, and some in slots of memory.

    file, mapped          weight [rows, dim], adagrad_sum [rows]          slow, as large as the disk
        | fetch   ^ write back
        v         |
    slots                 weight [slots, dim], adagrad_sum [slots]        memory of an in-memory kernel

A row need not be in the file before its first lookup. If it can be drawn independently
(`shunter.models.embeddings.initial_weights`), it is drawn into its slot at the first lookup, and written to the file
when it is evicted.

The files have no name, so they vanish with the process in any case. Only checkpoints survive; the tables are restored
from them.
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
from shunter.extensions.tiers.slots import Admission, SlotMap
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.embeddings.initial_weights import IndependentRows
from shunter.models.embeddings.request import EmbeddingCache

# Looked-up rows after which the mapped pages are released: at most 64 MiB, because Linux maps 64 KiB around each
# access, for weights and for sums.
MOST_TOUCHED_ROWS = 512
ROWS_BEGUN_AT_ONCE = 1 << 14  # rows drawn at a time if all rows are drawn into the file, to limit memory
BROKEN = "Rows cannot be moved to and from the file of the embedding tables"
REMEDY = "free space on its disk or repair it, and train again, which resumes from the last checkpoint."


@dataclass(frozen=True)
class StartBlock:
    """Consecutive rows of a table in a file that can be drawn independently.

    Attributes:
        first: Number of the first row, counted through the file.
        rows: Number of rows.
        first_row: Number of the first row within the table.
        table: Generator of the initial weights of the rows.
    """

    first: int
    rows: int
    first_row: int
    table: IndependentRows


class RowTiers:
    """Embedding rows in a file, of which the rows in use are cached in slots in memory.

    The file may be older than the slots; `flush` updates it to the last trained batch.

    Args:
        rows: Rows of all tables.
        dim: Width of every row.
        cache: Size of the window, access frequencies of rows, and folder of the file.
        weight: Memory of the kernel that trains the rows, float32 `[slots, dim]`.
        adagrad_sum: Optimiser state of these rows, float32 `[slots]`.

    Attributes:
        weight: Rows in the file, float32 `[rows, dim]`.
        adagrad_sum: Optimiser state in the file, float32 `[rows]`.
        slots: Largest number of rows in memory.
        counts: Statistics of moved rows.
        lock: Must be held by callers of `bring`, `begin`, `leave_window` and `forget`; other methods take it.

    Raises:
        HardwareError: There is not enough disk space for the file.
    """

    def __init__(self, rows: int, dim: int, cache: EmbeddingCache, weight: Tensor, adagrad_sum: Tensor) -> None:
        self._files = tuple(_map_file(4 * floats, cache.directory) for floats in (rows * dim, rows))
        self.weight, self.adagrad_sum = (torch.frombuffer(file, dtype=torch.float32) for file in self._files)
        self.weight = self.weight.view(rows, dim)
        # The same memory in tensors that autograd does not track: rows arrive between a forward and its backward pass.
        self._fast_weight, self._fast_sum = (torch.from_numpy(one.numpy()) for one in (weight, adagrad_sum))
        self.slots = len(weight)
        self._map = SlotMap(rows, self.slots, cache.window_batches, cache.row_levels)
        self._starting: list[StartBlock] = []  # in the order of the file
        self._touched_rows = 0
        self._file_is_current = self._is_whole = True
        self.counts = CacheCounts(rows=self.slots, row_bytes=4 * (dim + 1))
        self.lock = threading.Lock()

    @torch.no_grad()
    def bring(self, rows: np.ndarray, *, counted: bool = True) -> np.ndarray:
        """Load the rows of the next batch into slots, and return the slots.

        Args:
            rows: Distinct rows of the batch.
            counted: Whether the batch counts in the statistics of the training.

        Raises:
            TooLargeError: The batches in the window have more rows than there are slots; nothing has changed then.
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
        """Reset the tiers: mark all rows as neither written nor registered by `add_start`."""
        self._starting = []

    def add_start(self, table: IndependentRows, *, first: int, rows: int, first_row: int = 0) -> None:
        """Register rows that are initialised at their first lookup; see `StartBlock`. None of them may be in a slot."""
        self._starting.append(StartBlock(first, rows, first_row, table))
        self._map.mark_uninitialised(first, first + rows)

    def as_drawn(self) -> None:
        """Reset all rows that can be drawn independently to their initial weights, and empty the slots."""
        with self.lock:
            self.forget()
            for block in self._starting:
                self._map.mark_uninitialised(block.first, block.first + block.rows)

    @torch.no_grad()
    def begin(self, rows: np.ndarray) -> None:
        """Write initial weights for those of the given rows that the file does not have yet; rows may repeat.

        Call `flush` first, so that a row that is only in a slot was never trained.

        Raises:
            HardwareError: The file cannot be written.
        """
        if not self._map.uninitialised:
            return
        new = np.unique(rows[~self._map.are_initialised(rows)])
        if not len(new):
            return
        index = torch.from_numpy(new)
        try:
            self.weight.index_copy_(0, index, self._drawn(new))
            self.adagrad_sum.index_fill_(0, index, 0.0)
        except OSError as error:
            raise HardwareError(f"{BROKEN} ({error.strerror or error}): {REMEDY}") from error
        self._map.mark_initialised(new)
        self.count_touched(len(new))

    def begin_all(self) -> None:
        """Flush the cache, then write initial weights for all rows that the file does not have yet."""
        self.flush()
        rows = len(self.weight)
        with self.lock:
            for first in range(0, rows, ROWS_BEGUN_AT_ONCE) if self._map.uninitialised else ():
                self.begin(np.arange(first, min(first + ROWS_BEGUN_AT_ONCE, rows)))

    def record_written(self, rows: np.ndarray) -> None:
        """Record that other code has written distinct rows into the file."""
        with self.lock:
            self._map.mark_initialised(rows)

    def record_all_written(self) -> None:
        """Record that other code has written all rows into the file."""
        with self.lock:
            self._map.mark_all_initialised()

    def starts(self, first: int, rows: int) -> "BlockStarts | None":
        """Return the record of which `rows` rows from `first` on are initialised; None if all rows of the file are."""
        return BlockStarts(self, first, rows) if self._map.uninitialised else None

    def are_initialised(self, first: int, last: int) -> Tensor:
        """Return whether the file has each row of a range, as a bool tensor."""
        with self.lock:
            return torch.from_numpy(self._map.are_initialised(slice(first, last)))

    def leave_window(self) -> None:
        """End the window: the slots of all batches loaded so far may be reassigned."""
        self._map.leave_window()

    def mark_stale(self) -> None:
        """Record that the rows in slots change, so that the file is out of date until the next `flush`."""
        self._file_is_current = False

    @torch.no_grad()
    def flush(self) -> None:
        """Write all cached rows to the file if a batch was trained since the last flush; call this between two steps.

        The content of the file then does not change until the next step: rows evicted before that step are written with
        equal values.
        """
        if self._file_is_current:
            return
        with self.lock:
            self._check_whole()
            rows, slots = (torch.from_numpy(part.astype(np.int64)) for part in self._map.residents())
            self.write_back(rows, slots)
            self._map.mark_initialised(rows.numpy())
            self._file_is_current = True

    def forget(self) -> None:
        """Empty the slots without writing their rows to the file, because other code has written the file."""
        self._map.clear()
        self._file_is_current = self._is_whole = True

    def count_touched(self, rows: int) -> None:
        """Count accessed rows; after `MOST_TOUCHED_ROWS`, release the mapped pages, which count as process memory."""
        self._touched_rows += rows
        if self._touched_rows >= MOST_TOUCHED_ROWS:
            self.leave_pages()

    def leave_pages(self) -> None:
        """Release the mapped pages, which count as memory of this process; written data stays in the page cache."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for file in self._files:
                file.madvise(mmap.MADV_DONTNEED)
        self._touched_rows = 0

    def _move(self, admission: Admission) -> None:
        """Write evicted rows back, and read arriving rows; after an error, the slots must not be saved."""
        self._check_whole()
        self._is_whole = False
        as_index = {name: torch.from_numpy(part.astype(np.int64)) for name, part in vars(admission).items()}
        try:
            self.write_back(as_index["leaving"], as_index["leaving_slots"])
            rows, slots = as_index["arriving"], as_index["arriving_slots"]
            if admission.is_new.any():
                new, is_old = np.flatnonzero(admission.is_new), torch.from_numpy(np.flatnonzero(~admission.is_new))
                new_slots = slots[torch.from_numpy(new)]
                self._fast_weight.index_copy_(0, new_slots, self._drawn(admission.arriving[new]))
                self._fast_sum.index_fill_(0, new_slots, 0.0)
                rows, slots = rows[is_old], slots[is_old]
            self._fast_weight.index_copy_(0, slots, self.weight.index_select(0, rows))
            self._fast_sum.index_copy_(0, slots, self.adagrad_sum.index_select(0, rows))
        except OSError as error:
            raise HardwareError(f"{BROKEN} ({error.strerror or error}): {REMEDY}") from error
        self._is_whole = True
        self.count_touched(len(rows))

    def _drawn(self, rows: np.ndarray) -> Tensor:
        """Draw the initial weights of rows, counted through the file, each of which is in a `StartBlock`."""
        block_of_row = np.searchsorted([block.first for block in self._starting], rows, side="right") - 1
        drawn = np.empty((len(rows), self.weight.shape[1]), np.float32)
        for number in np.unique(block_of_row).tolist():
            block, here = self._starting[number], np.flatnonzero(block_of_row == number)
            drawn[here] = block.table.draw(rows[here] - block.first + block.first_row)
        return torch.from_numpy(drawn)

    def _check_whole(self) -> None:
        if not self._is_whole:
            raise HardwareError(f"{BROKEN}: {REMEDY}")

    def write_back(self, rows: Tensor, slots: Tensor) -> None:
        """Write cached rows from their slots to the file."""
        self.weight.index_copy_(0, rows, self._fast_weight.index_select(0, slots))
        self.adagrad_sum.index_copy_(0, rows, self._fast_sum.index_select(0, slots))
        self.count_touched(len(rows))


class BlockStarts:
    """Record of the initialised rows of a block in the file (`shunter.models.embeddings.shards.RowStarts`)."""

    def __init__(self, tiers: RowTiers, first: int, rows: int) -> None:
        self._tiers, self._first, self._rows = tiers, first, rows

    def mask_initialised(self, wanted: Tensor) -> None:
        """Set entries of `wanted`, a bool for each row, to False for rows that are not initialised."""
        assert len(wanted) == self._rows, "all rows of the block"
        for start in range(0, self._rows, ROWS_BEGUN_AT_ONCE):
            part = wanted[start : start + ROWS_BEGUN_AT_ONCE]
            part &= self._tiers.are_initialised(self._first + start, self._first + start + len(part))

    def begin(self, rows: Tensor) -> None:
        """Initialise the rows that have no weights yet; row numbers are relative to the block."""
        with self._tiers.lock:
            self._tiers.begin(rows.numpy() + self._first)

    def record_written(self, rows: Tensor) -> None:
        """Record that whole rows were written; row numbers are relative to the block."""
        self._tiers.record_written(rows.numpy() + self._first)


def check_cache(cache: EmbeddingCache, device: torch.device) -> None:
    """Raise if tables in a file cannot be built with this cache on this device.

    Raises:
        RequestError: The cache has no row, or the device is not the CPU.
    """
    if cache.rows < 1:
        raise RequestError(f"A cache of {cache.rows} embedding rows is too small: use at least 1.")
    if device.type != "cpu":
        raise RequestError(
            f"Embedding tables in a file are trained on the device cpu only, not on {device}: leave out "
            "--embedding-memory."
        )


def _map_file(size: int, directory: Path | None) -> mmap.mmap:
    """Map a new file of zeros without a name, `size` bytes long."""
    folder = directory or Path(tempfile.gettempdir())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):  # a full disk at a later write to mapped memory would kill the process
                os.posix_fallocate(file.fileno(), 0, size)
            mapped = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise HardwareError(
            f"The embedding file of {size:,} bytes cannot be created in the folder {folder} "
            f"({error.strerror}): free some space, or name another folder."
        ) from error
    # Rows are small and far apart, so read-ahead would only evict useful pages of the file from memory.
    if hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)
    return mapped
