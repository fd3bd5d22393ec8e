"""The tables of a training, kept as parts that are laid one upon the other: all rows, then those that have changed."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from shunter.engine.checkpoint.growth import Content
from shunter.engine.checkpoint.heat import HOT_BITS, HotRows
from shunter.engine.checkpoint.keeping import FEWEST_BITS_OF_BEST, Keeping
from shunter.engine.checkpoint.pieces import Piece, StoredRows, put_into
from shunter.engine.checkpoint.snapshot import Snapshot
from shunter.engine.checkpoint.touched import History, Intervals, TouchedRows
from shunter.models.embeddings.initial_weights import RULE
from shunter.models.embeddings.role import EmbeddingTables

# Into so many ranges `auto` divides the rows: it begins anew with one at a time, a small part of a checkpoint.
RANGES = 8


@dataclass(frozen=True, kw_only=True)
class RowsToKeep:
    """What the next checkpoint holds of the tables.

    Attributes:
        contents: Which rows of each range.
        bits: Bits of a number.
        left_out: By which rule rows are drawn that nobody has asked for yet, which are left out; empty where none is.
        pieces: The rows as they were, with the number of their range, made one by one as they are asked for; where the
            tables lie in memory, steps may go on meanwhile.
    """

    contents: tuple[Content, ...]
    bits: int
    left_out: str
    pieces: Iterator[tuple[int, Piece]]

    @property
    def are_all(self) -> bool:
        """Whether all rows are kept."""
        return set(self.contents) == {"full"}


class ChangingTables:
    """Knows which rows have to be kept next.

    Args:
        tables: Live tables.
        device: Device of the batches.
        keeping: How they are kept.
    """

    def __init__(self, tables: EmbeddingTables, device: torch.device, keeping: Keeping) -> None:
        self._tables, self._keeping = tables, keeping
        ranges = min(RANGES, sum(tables.rows)) if keeping.policy == "auto" else 1
        self._intervals = Intervals(TouchedRows(tables, device), keeping.policy, ranges)
        self._first_rows = [*accumulate(tables.rows, initial=0)]
        self._stored = StoredRows()
        self._snapshot: Snapshot | None = None

    @property
    def history(self) -> History:
        """Shares of each range that were kept since all of it was; what the policy goes by."""
        return self._intervals.history

    def note(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Note the rows of a batch, right before it is trained, and return them, numbered through all tables."""
        rows = self._tables.rows_of_batch(values, offsets)
        self._intervals.touched.note(rows)
        return rows

    def before_step(self, rows: Tensor) -> None:
        """Copy what a step is about to change of the rows that are still to be written."""
        if self._snapshot is not None:
            self._snapshot.before_step(rows)

    @property
    def bytes(self) -> int:
        """Bytes of the rows and of their optimiser's state that lie here."""
        return bytes_of(self._tables)

    def next_rows(
        self, restores: int, copied_bytes: float, *, is_best: bool = False, may_give_up: bool = False
    ) -> RowsToKeep:
        """What is kept next; from here on a new interval counts.

        Args:
            restores: How often the training was gone on with.
            copied_bytes: Most that copies of rows may take which steps change before they are written.
            is_best: Whether they are the best weights so far, of which no row is kept in fewer than 8 bits.
            may_give_up: Whether it is given up (`GivenUpError`) instead of letting steps wait.
        """
        if not self._stored.is_empty:
            since_last = self._intervals.touched.since_last()
            for table, rows in enumerate(since_last.split(self._tables.rows)):
                self._stored.drop(table, rows.nonzero().view(-1))
        bits = self._keeping.bits_of(self.bytes, restores)
        hot_rows = HotRows(self._tables.begun_shards()) if bits < HOT_BITS and not is_best else None
        wanted = self._intervals.next(all_rows=is_best and bits < FEWEST_BITS_OF_BEST)
        is_complete = keep_begun(self._tables, wanted.rows)
        snapshot = Snapshot(
            self._tables,
            wanted.rows,
            copied_bytes,
            bounds=self._intervals.bounds,
            may_give_up=may_give_up,
        )
        self._snapshot = snapshot if self._tables.is_in_memory else None
        return RowsToKeep(
            contents=wanted.contents,
            bits=max(bits, FEWEST_BITS_OF_BEST) if is_best else bits,
            left_out="" if is_complete else RULE,
            pieces=self._pieces(snapshot, hot_rows),
        )

    def close(self) -> None:
        """What is still to be written of `next_rows` never will be."""
        if self._snapshot is not None:
            self._snapshot.close()

    def undo(self) -> None:
        """What `next_rows` gave last was not kept, and is to be kept still; no step may go on meanwhile."""
        self._intervals.undo()

    def _pieces(self, snapshot: Snapshot, hot_rows: HotRows | None) -> Iterator[tuple[int, Piece]]:
        for piece in snapshot.pieces():
            first = self._first_rows[piece.table] + piece.first_row
            number = bisect_right(self._intervals.bounds, first) - 1
            for part in self._stored.divide(piece):
                for one in (part,) if hot_rows is None else hot_rows.divide(part):
                    yield number, one

    def put_back(self, pieces: Iterator[tuple[Content, Piece]], history: Sequence[Sequence[float]]) -> None:
        """Lay parts one upon the other into the tables, and go on from there.

        Args:
            pieces: The pieces of all parts in their order, with what their part holds.
            history: `history` as it was when the last part was kept.
        """
        shards = list(self._tables.begun_shards())
        for content, piece in pieces:
            put_into(shards, piece, self._stored)
            if content != "full":
                self._intervals.touched.note_rows(piece.table, piece.rows + piece.first_row)
        self._tables.forget_rows()
        self._intervals.go_on(history)


def keep_begun(tables: EmbeddingTables, wanted: Tensor) -> bool:
    """Of a bool of all rows of whole tables let those be false that were never touched; whether there are none."""
    shards = list(tables.begun_shards())
    for shard, part in zip(shards, wanted.split(tables.rows), strict=False):
        if shard.starts is not None:
            shard.starts.keep_begun(part)
    return all(shard.starts is None for shard in shards)


def bytes_of(tables: EmbeddingTables) -> int:
    """Bytes of the rows of tables that lie here, and of their optimiser's state."""
    held = tables.held_bytes()
    return held.weights + held.optimizer
