"""Embedding tables in a file, of which the rows in work lie in memory.

    file, mapped          weight [rows, dim], adagrad_sum [rows]          the tables; slow, as large as the disk
        | fetch   ^ write back: by a background thread, before a batch is trained
        v         |
    kernel                weight [slots, dim], adagrad_sum [slots]        any in-memory kernel; sees slots as ids

A batch is first admitted, which brings its rows into slots and renumbers its ids, and later trained. In between, other
batches may be trained and admitted. There is no hazard between the two, because they never touch the same slot: a
trained batch works on its own slots only, and its slots are given to other rows only after it has left the window of
`EmbeddingCache.window_batches`. Nor is there one within admission: one thread at a time writes leaving rows back
before it fetches arriving ones. So the arithmetic is that of the in-memory kernel, row by row and bit by bit.

Where the cache is too small for the window, a batch waits: its rows are brought when it is its turn to be trained, and
every batch before it is done. Those behind it wait as well, until the cache has room for them again. So a cache has to
hold the rows of one batch only; what a smaller window costs is the time of the transfer, beside no step.

The files have no name: they vanish with the process, however it ends. What survives is a checkpoint, from which the
tables are written anew.
"""

import mmap
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from models.embeddings.cache_counts import CacheCounts
from models.embeddings.mapped import sum_of_rows
from models.embeddings.pooled import build_embeddings
from models.embeddings.request import EmbeddingCache, Kernel, TableRequest
from models.embeddings.role import EmbeddingTables
from models.embeddings.shards import Shard
from models.embeddings.slots import Admission, SlotMap
from shunter.errors import HardwareError, RequestError, TooLargeError

# Rows after which the pages of the files are given back: 64 MiB at most, for Linux maps 64 KiB around what is read, of
# the weights and of the sums.
MOST_TOUCHED_ROWS = 512
BROKEN = "Rows cannot be moved to and from the file of the embedding tables"
REMEDY = "make room on its disk or see to it, and train again, which goes on from the last checkpoint."


class _Admitted(NamedTuple):
    """A batch that waits for its training.

    Attributes:
        slots: Its ids in slots, int32; written when its rows have them.
        rows: Its distinct rows.
        position: Where among them the row of each id is; None once `slots` is written.
    """

    slots: Tensor
    rows: np.ndarray
    position: np.ndarray | None


class TieredEmbeddings(EmbeddingTables):
    """Tables in a file behind an in-memory kernel over the slots of a cache.

    In training mode it looks up what `admit` returned, batch by batch in the same order; in evaluation mode it takes
    ids, and reads the rows from the file without disturbing the cache.

    `state_dict` and a lookup in evaluation mode write all cached rows to the file first, so `weight` and after them
    `adagrad_sum` are those of the last trained batch. At other times they lag behind.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        learning_rate: Step size of the row-wise Adagrad.
        device: The CPU.
        cache: Size of the cache and place of the file.
        kernel: Library that does the lookups of the rows in memory.
        table_of: See `EmbeddingTables`.

    Raises:
        RequestError: The cache has no row, or the device is not the CPU.
        HardwareError: There is no room for the file.
    """

    is_in_memory = False

    def __init__(
        self,
        rows: Sequence[int],
        dim: int,
        *,
        learning_rate: float,
        device: torch.device,
        cache: EmbeddingCache,
        kernel: Kernel = "auto",
        table_of: Sequence[int] | None = None,
    ) -> None:
        super().__init__(rows, dim, learning_rate, table_of)
        if cache.rows < 1:
            raise RequestError(f"A cache of {cache.rows} embedding rows is no cache: use at least 1.")
        if device.type != "cpu":
            raise RequestError(
                f"Embedding tables in a file are trained on the device cpu and not on {device}: leave out "
                f"--embedding-memory there."
            )
        total, slots = sum(rows), min(cache.rows, sum(rows))
        self._files = tuple(_MappedFile(floats, cache.directory) for floats in (total * dim, total))
        self._touched_rows = 0
        self.register_buffer("weight", self._files[0].tensor.view(total, dim))
        self.register_buffer("adagrad_sum", self._files[1].tensor, persistent=False)
        # Slot 0 stays empty, for the plain torch kernel adds zeros to row 0 while other slots are being filled.
        # Not part of the module tree: what is saved are the tables, not the cache.
        self._kernel = (build_embeddings((slots + 1,), dim, learning_rate=learning_rate, device=device, kernel=kernel),)
        # Same memory, but to autograd not the same tensor: rows arrive between a forward and its backward pass.
        self._fast_weight = torch.from_numpy(self._kernel[0].weight.numpy())[1:]
        self._fast_sum = torch.from_numpy(self._kernel[0].adagrad_sum.numpy())[1:]
        self._bag_starts = np.cumsum((0, *rows[:-1]))[list(self.table_of)]
        self._slots = SlotMap(total, slots, cache.window_batches)
        self._lock = threading.Lock()
        self._admitted: deque[_Admitted] = deque()
        self._file_is_current = self._is_whole = True
        self.counts = CacheCounts(rows=slots, row_bytes=4 * (dim + 1))
        self.register_state_dict_pre_hook(_flush_first)
        self.register_load_state_dict_post_hook(_forget_rows)

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Whether the tables lie behind a cache.

        Raises:
            RequestError: They do, and are not of one width with a row for each id.
        """
        if wanted.cache is not None and wanted.is_mixed:
            raise RequestError(
                "Embedding tables in a file are of one width with a row for each id: leave out --embedding-memory, or "
                "table_dims and table_shares."
            )
        return wanted.cache is not None

    @classmethod
    def of(cls, wanted: TableRequest) -> Self:
        """Build uninitialised tables."""
        assert wanted.cache is not None, "without a cache the tables lie in memory"
        return cls(
            wanted.rows,
            wanted.dim,
            learning_rate=wanted.learning_rate,
            device=wanted.device,
            kernel=wanted.kernel,
            table_of=wanted.table_of,
            cache=wanted.cache,
        )

    @property
    def cache_counts(self) -> CacheCounts:
        """What the cache did so far."""
        return self.counts

    def begin(self) -> None:
        """Start a sequence of batches: those admitted and not trained are dropped, and no earlier one is in work."""
        with self._lock:
            self._admitted.clear()
            self._slots.leave_window()

    @torch.no_grad()
    def admit(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Bring the rows of a batch into memory; may run in another thread than training.

        Args:
            values: Ids, table by table and sample by sample within a table.
            offsets: `[tables * batch + 1]`, where each bag starts in `values`, and the end.

        Returns:
            The same in slots, int32: what `forward` takes in training mode.

        Raises:
            TooLargeError: The rows of the batch alone are more than the cache holds.
        """
        import pandas as pd

        position, distinct = pd.factorize(self._rows_of(values, offsets))
        if len(distinct) > self._slots.slots:
            raise TooLargeError(
                f"The embedding cache of {self._slots.slots:,} rows cannot hold the {len(distinct):,} rows of one "
                f"batch: raise --embedding-memory, or lower the batch size."
            )
        slots = torch.empty(len(position), dtype=torch.int32)
        with self._lock:
            self._admitted.append(_Admitted(slots, np.asarray(distinct), position))
            self._bring_waiting()
        return slots

    def _bring_waiting(self, *, is_alone: bool = False) -> None:
        """Give slots to the batches that have none, first come first, as far as the cache has room.

        Args:
            is_alone: Whether every batch before the first that waits is done.
        """
        for place, batch in enumerate(self._admitted):
            if batch.position is None:
                continue
            if is_alone:
                self._slots.leave_window()
                is_alone = False
            started = time.perf_counter()
            try:
                admission = self._slots.admit(batch.rows)
            except TooLargeError:
                return
            self._move(admission)
            np.add(admission.slots[batch.position], 1, out=batch.slots.numpy())
            self._admitted[place] = batch._replace(position=None)
            self.counts.lookups += len(batch.position)
            self.counts.hits += len(batch.rows) - len(admission.arriving)
            self.counts.misses += len(admission.arriving)
            self.counts.written_back += len(admission.leaving)
            self.counts.transfer_seconds += time.perf_counter() - started

    def rows_of_batch(self, values: Tensor, offsets: Tensor) -> Tensor:
        """The rows of the batch that is trained next."""
        assert values is self._admitted[0].slots, "batches are trained in the order in which they were admitted"
        return torch.from_numpy(self._admitted[0].rows)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag."""
        if self.training:
            assert self._admitted, "in training mode a batch is admitted before it is looked up"
            assert values is self._admitted[0].slots, "batches are trained in the order in which they were admitted"
            with self._lock:
                if self._admitted[0].position is not None:
                    self._bring_waiting(is_alone=True)
                self._admitted.popleft()
            self._file_is_current = False
            pooled = self._kernel[0](values, offsets, weights)
        else:
            self.flush()
            rows = torch.from_numpy(self._rows_of(values, offsets))
            pooled = sum_of_rows(self.weight, rows, offsets, weights)
            self._note_touched(len(rows))
        return pooled.view(len(self.table_of), -1, self.dim).transpose(0, 1).flatten(1)

    def set_learning_rate(self, rate: float) -> None:
        """Also in the kernel of the rows in memory."""
        super().set_learning_rate(rate)
        self._kernel[0].set_learning_rate(rate)

    @torch.no_grad()
    def flush(self) -> None:
        """Write all cached rows to the file, unless nothing was trained since; between two steps, not within one.

        Until the next step the file stays as it is, though rows may leave the cache: they write the same values again.
        """
        if self._file_is_current:
            return
        with self._lock:
            self._check_whole()
            rows, slots = (torch.from_numpy(part.astype(np.int64)) for part in self._slots.residents())
            self._write_back(rows, slots)
            self._file_is_current = True

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state, in the file."""
        self.flush()
        return super().optimizer_tensors()

    def load_optimizer_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the optimiser's state into the file, and forget what the cache holds of it."""
        super().load_optimizer_tensors(tensors)
        self.forget_rows()

    def shards(self) -> Iterator[Shard]:
        """The tables in the file; the cache is flushed first."""
        self.flush()
        return super().shards()

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the tables as every kind does, into the file."""
        super().initialise(generator)
        self._leave_pages()
        self.forget_rows()

    def forget_rows(self) -> None:
        """Empty the cache without writing it back: the file was written by others."""
        with self._lock:
            self._slots.clear()
            self._admitted.clear()
            self._file_is_current = self._is_whole = True

    def _rows_of(self, values: Tensor, offsets: Tensor) -> np.ndarray:
        """Row in `weight` of each id."""
        batch = (len(offsets) - 1) // len(self.table_of)
        ids_of_bag = np.diff(offsets[::batch].numpy())
        return values.numpy() + np.repeat(self._bag_starts, ids_of_bag)

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
            self._write_back(as_index["leaving"], as_index["leaving_slots"])
            rows, slots = as_index["arriving"], as_index["arriving_slots"]
            self._fast_weight.index_copy_(0, slots, self.weight.index_select(0, rows))
            self._fast_sum.index_copy_(0, slots, self.adagrad_sum.index_select(0, rows))
        except OSError as error:
            raise HardwareError(f"{BROKEN} ({error.strerror or error}): {REMEDY}") from error
        self._is_whole = True
        self._note_touched(len(rows))

    def _check_whole(self) -> None:
        if not self._is_whole:
            raise HardwareError(f"{BROKEN}: {REMEDY}")

    def _write_back(self, rows: Tensor, slots: Tensor) -> None:
        self.weight.index_copy_(0, rows, self._fast_weight.index_select(0, slots))
        self.adagrad_sum.index_copy_(0, rows, self._fast_sum.index_select(0, slots))
        self._note_touched(len(rows))

    def _note_touched(self, rows: int) -> None:
        """Give the pages of the files back now and then: they count as this process's memory while they are mapped."""
        self._touched_rows += rows
        if self._touched_rows >= MOST_TOUCHED_ROWS:
            self._leave_pages()

    def _leave_pages(self) -> None:
        for file in self._files:
            file.leave_pages()
        self._touched_rows = 0


def _flush_first(module: nn.Module, *_: Any) -> None:
    assert isinstance(module, TieredEmbeddings)
    module.flush()


def _forget_rows(module: nn.Module, *_: Any) -> None:
    assert isinstance(module, TieredEmbeddings)
    module.forget_rows()


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
