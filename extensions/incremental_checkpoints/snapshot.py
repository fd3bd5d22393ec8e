"""Copy-on-write snapshot of table rows, written while training changes the rows.

    at the snapshot     each row to be stored is marked as pending; nothing is copied
    before a step       the pending rows of the step are copied, and are no longer pending
    during training     the writer takes these copies, and reads the rows that are still pending from the tables

Each row is taken once, with its value at the snapshot. The writer reads a few thousand numbers at a time, and a step
that changes one of these rows waits for this read. A writer that is slower than the steps does not delay them: in the
end all rows are copied. Only if the copies fill their memory limit does a step wait for the writer, or the snapshot is
abandoned.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.changed_rows import GivenUpError
from shunter.extensions.incremental_checkpoints.pieces import PIECE_BYTES, Piece
from shunter.models.embeddings.role import EmbeddingTables

# Numbers read out of the tables at once: so few that torch uses only the calling thread, and a step waits only briefly.
NUMBERS_AT_ONCE = 1 << 14
# Half of the memory limit is used, because rows are copied once more to be written in the order of their numbers.
# Copies are written when they fill half of that half or the number of bytes below, and in portions of that size.
SHARE_BEFORE_WRITING = 0.5
MOST_BEFORE_WRITING_BYTES = 64 << 20


@dataclass(frozen=True)
class _Block:
    """Tables of one width whose rows are consecutive; the memory is live."""

    first: int  # number of the first row, counted through all tables
    weight: Tensor  # [rows, width]
    sums: Tensor  # [rows]

    @property
    def row_bytes(self) -> int:
        return self.weight.element_size() * self.weight.shape[1] + self.sums.element_size()


@dataclass(frozen=True)
class _Rows:
    """Copied rows of a block."""

    numbers: np.ndarray  # int64 [rows], ascending, counted through all tables
    weight: np.ndarray  # [rows, width]
    sums: np.ndarray  # [rows]

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.weight.nbytes + self.sums.nbytes


class Snapshot:
    """Values of table rows at the time of construction.

    Args:
        tables: Live tables. If they are divided over processes or in a file, no row may change until `pieces` has
            ended.
        wanted: Mask of the rows to store, bool of all rows on the CPU; modified in place. None is all rows.
        copied_bytes: Limit in bytes of the copies of rows that training is about to change.
        bounds: Row numbers, counted through all tables, at which pieces are split.
        may_give_up: If True, the snapshot is abandoned when the copies reach `copied_bytes`; otherwise training waits.
    """

    def __init__(
        self,
        tables: EmbeddingTables,
        wanted: Tensor | None = None,
        copied_bytes: float = 0,
        *,
        bounds: Sequence[int] = (),
        may_give_up: bool = False,
    ) -> None:
        self._first_rows = [0, *accumulate(tables.rows)]
        self._cuts = sorted({*self._first_rows, *bounds})
        self._may_give_up = may_give_up
        self.is_given_up = False
        self._blocks = _blocks_of(tables)
        self._pending = np.ones(self._first_rows[-1], dtype=bool) if wanted is None else wanted.numpy()
        self._most_bytes = copied_bytes * SHARE_BEFORE_WRITING
        self._enough_bytes = min(self._most_bytes / 2, MOST_BEFORE_WRITING_BYTES)
        self._copied: list[list[_Rows]] = [[] for _ in self._blocks]
        self._copied_bytes = 0
        self._changed = threading.Condition()
        self._is_waited_for = False
        self._is_over = False

    @torch.no_grad()
    def before_step(self, rows: Tensor) -> None:
        """Copy pending rows that a step is about to change.

        Args:
            rows: int64, all rows of the step, numbered through all tables, with or without repetition.
        """
        if self._is_over:
            return
        numbers = rows.cpu().numpy()
        with self._changed:
            while not self._is_over:
                pending = _distinct(numbers[self._pending[numbers]])
                if self._has_room(pending):
                    self._copy(pending)
                    return
                if self._may_give_up:
                    self.is_given_up = True
                    self._end()
                    return
                self._is_waited_for = True
                self._changed.wait()

    def pieces(self) -> Iterator[Piece]:
        """Yield all rows, each once, piece by piece; training may continue at the same time.

        Raises:
            GivenUpError: Rows change faster than the writer takes them.
        """
        try:
            for block in self._blocks:
                at_once = max(PIECE_BYTES // block.row_bytes, 1)
                for first in range(block.first, block.first + len(block.weight), at_once):
                    self._check()
                    if self._is_waited_for or self._copied_bytes >= self._enough_bytes:
                        yield from self._copied_pieces()
                    last = min(first + at_once, block.first + len(block.weight))
                    yield from self._by_table(self._taken(block, first, last))
            yield from self._copied_pieces()
            self._check()
        finally:
            self.close()

    def close(self) -> None:
        """End the snapshot: training no longer copies rows and no longer waits."""
        with self._changed:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        self._copied = [[] for _ in self._blocks]
        self._copied_bytes = 0
        self._pending = np.zeros_like(self._pending)
        self._changed.notify_all()

    def _check(self) -> None:
        if self.is_given_up:
            raise GivenUpError

    def _copy(self, rows: np.ndarray) -> None:
        self._pending[rows] = False
        for block, kept in zip(self._blocks, self._copied, strict=True):
            first, last = np.searchsorted(rows, (block.first, block.first + len(block.weight)))
            if first < last:
                copied = _read(block, rows[first:last])
                kept.append(copied)
                self._copied_bytes += copied.nbytes

    def _has_room(self, rows: np.ndarray) -> bool:
        widest = max(block.row_bytes for block in self._blocks)
        return not self._copied_bytes or self._copied_bytes + len(rows) * widest <= self._most_bytes

    @torch.no_grad()
    def _taken(self, block: _Block, first: int, last: int) -> _Rows:
        """Read the pending rows of a block from `first` to `last` (excluded), which are then no longer pending."""
        # Rows only ever stop being pending. What is read here without the lock therefore includes all pending rows, and
        # possibly more. A copy is needed, because NumPy counts first and fills then: a change between the two would
        # leave invalid row numbers.
        candidates = first + np.flatnonzero(self._pending[first:last].copy())
        dtype = torch.empty(0, dtype=block.weight.dtype).numpy().dtype
        taken = _Rows(
            np.empty(len(candidates), dtype=np.int64),
            np.empty((len(candidates), block.weight.shape[1]), dtype),
            np.empty(len(candidates), dtype=np.float32),
        )
        count = 0
        at_once = max(NUMBERS_AT_ONCE // block.weight.shape[1], 1)
        for start in range(0, len(candidates), at_once):
            with self._changed:
                some = candidates[start : start + at_once]
                some = some[self._pending[some]]
                part = _read(block, some)
                self._pending[some] = False
            place = slice(count, count + len(some))
            taken.numbers[place], taken.weight[place], taken.sums[place] = part.numbers, part.weight, part.sums
            count += len(some)
        return _Rows(taken.numbers[:count], taken.weight[:count], taken.sums[:count])

    def _copied_pieces(self) -> Iterator[Piece]:
        """Yield the rows that were copied before steps, in the order of their numbers, and free their memory."""
        with self._changed:
            copied, self._copied = self._copied, [[] for _ in self._blocks]
            self._is_waited_for = False
        for parts in copied:
            while parts:
                some, freed = _some_of(parts, self._enough_bytes)
                rows = _in_order(some)
                del some
                yield from self._by_table(rows)
                del rows
                with self._changed:
                    self._copied_bytes = max(self._copied_bytes - freed, 0)
                    self._changed.notify_all()

    def _by_table(self, rows: _Rows) -> Iterator[Piece]:
        """Yield rows of a block as pieces of its tables."""
        row_bytes = rows.weight.itemsize * rows.weight.shape[1] + rows.sums.itemsize
        at_once = max(PIECE_BYTES // row_bytes, 1)
        bounds = np.searchsorted(rows.numbers, self._cuts)
        for cut, (start, end) in zip(self._cuts, pairwise(bounds), strict=False):
            table = bisect_right(self._first_rows, cut) - 1
            for first in range(start, end, at_once):
                part = slice(first, min(first + at_once, end))
                first_row = int(rows.numbers[first])
                yield Piece(
                    table=table,
                    first_row=first_row - self._first_rows[table],
                    first_column=0,
                    rows=torch.from_numpy(rows.numbers[part] - first_row),
                    weight=torch.from_numpy(rows.weight[part]),
                    adagrad_sum=torch.from_numpy(rows.sums[part]),
                    columns=rows.weight.shape[1],
                )


def _blocks_of(tables: EmbeddingTables) -> list[_Block]:
    """Return tables of one width as one block, which steps read faster; otherwise one block for each table."""
    shards = list(tables.initialised_shards())  # updates tables in a file
    if tables.weight.ndim == 2:
        return [_Block(0, tables.weight, tables.adagrad_sum)]
    first_rows = accumulate(tables.rows, initial=0)
    return [_Block(first, shard.weight, shard.adagrad_sum) for first, shard in zip(first_rows, shards, strict=False)]


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Return distinct row numbers, ascending, in a sixth of the time of `np.unique` for about ten thousand numbers."""
    fits = not len(numbers) or numbers.max() <= np.iinfo(np.int32).max
    ordered = np.sort(numbers.astype(np.int32)) if fits else np.sort(numbers)
    is_first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first].astype(np.int64)


def _read(block: _Block, numbers: np.ndarray) -> _Rows:
    rows = torch.from_numpy(numbers - block.first).to(block.weight.device)
    weight, sums = (tensor.index_select(0, rows).cpu().numpy() for tensor in (block.weight, block.sums))
    return _Rows(numbers, weight, sums)


def _some_of(parts: list[_Rows], most_bytes: float) -> tuple[list[_Rows], int]:
    """Remove the last parts from a list, at least one and up to `most_bytes`; return these parts and their bytes."""
    some = [parts.pop()]
    taken = some[0].nbytes
    while parts and taken + parts[-1].nbytes <= most_bytes:
        some.append(parts.pop())
        taken += some[-1].nbytes
    return some, taken


def _in_order(parts: list[_Rows]) -> _Rows:
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers)
    weight = np.concatenate([part.weight for part in parts])[order]
    return _Rows(numbers[order], weight, np.concatenate([part.sums for part in parts])[order])
