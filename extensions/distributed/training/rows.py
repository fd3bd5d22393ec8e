"""Changed rows of divided tables: each process stores the rows of its own shards.

A process sees only the ids of its own samples, but the samples of other processes change its rows too. Each process
therefore records the rows that it looks up in any shard. At a checkpoint the records of all processes are combined,
with a message of one byte for each row of all tables. If rows are stored in few bits,
each block of columns of a row has its own scale.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.checkpoint.generations import Content, Part
from shunter.engine.checkpoint.storage import read_tensors
from shunter.extensions.distributed.training.stored import check_covered
from shunter.extensions.incremental_checkpoints.pieces import (
    HOT_BITS,
    PIECE_BYTES,
    HotRowSplitter,
    Piece,
    StoredRows,
    decode,
    full_precision,
)
from shunter.extensions.incremental_checkpoints.touched import History, Intervals, TouchedRows
from shunter.models.embeddings.initial_weights import RULE
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.shards import Shard


@dataclass(frozen=True, kw_only=True)
class OwnRows:
    """Rows that a process writes into the next checkpoint.

    Attributes:
        content: Selection of the rows (all, or changed ones).
        left_out: Initialisation rule of rows that were never looked up and are left out; empty if no row is left
            out.
        pieces: Rows of the process; pieces of live tables are generated lazily.
    """

    content: Content
    bits: int
    left_out: str
    pieces: Iterable[Piece]


class DividedRows:
    """Selection of the rows of the next checkpoint from live, divided tables; all processes call `next` together.

    Args:
        device: Device of the batches.
        table_bytes: Bytes of the tables of all processes, including optimiser state.

    Attributes:
        parts: Parts of the last checkpoint.
    """

    def __init__(
        self, tables: EmbeddingTables, device: torch.device, checkpoint_settings: CheckpointSettings, table_bytes: int
    ) -> None:
        self._tables, self._device = tables, device
        self._checkpoint_settings, self._table_bytes = checkpoint_settings, table_bytes
        self._intervals = Intervals(TouchedRows(tables, device), checkpoint_settings.rows)
        self._stored = StoredRows()
        self.parts: tuple[Part, ...] = ()

    @property
    def history(self) -> History:
        """Return the shares of rows in the checkpoints since the last full one."""
        return self._intervals.history

    def note(self, values: Tensor, offsets: Tensor) -> None:
        """Record the rows of this process's part of a batch, right before the training step."""
        self._intervals.touched.note(self._tables.rows_of_batch(values, offsets))

    def next(self, rank: int) -> OwnRows:
        """Return the rows that process `rank` writes next, and start a new interval of changes.

        A replicated table is written by the first process.
        """
        touched = self._intervals.touched
        of_all = touched.since_last().to(self._device, torch.uint8)
        dist.all_reduce(of_all, dist.ReduceOp.MAX)
        touched.record_all(of_all.bool())
        if not self._stored.is_empty:
            for table, rows in enumerate(touched.since_last().split(self._tables.rows)):
                self._stored.drop(table, rows.nonzero().view(-1))
        wanted = self._intervals.next()
        by_table = wanted.rows.split(self._tables.rows)
        shards = [shard for shard in self._tables.initialised_shards() if rank == 0 or not shard.replicated]
        pieces = (part for piece in _pieces(shards, by_table) for part in self._stored.divide(piece))
        bits = self._checkpoint_settings.bits_of(self._table_bytes)
        if bits < HOT_BITS:
            hot_rows = HotRowSplitter(shards)
            pieces = (one for piece in pieces for one in hot_rows.divide(piece))
        left_out = "" if all(shard.starts is None for shard in shards) else RULE
        return OwnRows(content=wanted.contents[0], bits=bits, left_out=left_out, pieces=pieces)

    def resume(self, directory: Path, parts: Sequence[Part], history: Sequence[Sequence[float]]) -> None:
        """Resume from the parts of a checkpoint, and the `history` at its time."""
        shards = list(self._tables.initialised_shards())
        for part in parts:
            for piece in pieces_of(directory, part):
                if part.content != "full":
                    self._intervals.touched.record_rows(piece.table, piece.rows + piece.first_row)
                self._stored.note(piece, shards)
        self._intervals.resume(history)
        self.parts = tuple(parts)


def pieces_of(directory: Path, part: Part) -> Iterator[Piece]:
    """Yield the pieces of one checkpoint part (all rows, or changed rows) that all processes have written."""
    for file in part.files:
        yield from decode(read_tensors(directory / file.name, file.sha256))


@torch.no_grad()
def load_parts(shards: Sequence[Shard], directory: Path, parts: Sequence[Part]) -> None:
    """Load checkpoint parts in their order into shards of any division; see `blocks.fill_shards`.

    Raises:
        CheckpointError: The part with all rows does not cover a shard.
    """
    for part in parts:
        covered = [0] * len(shards)
        is_new = [torch.ones(len(shard.weight), dtype=torch.bool) for shard in shards]
        for piece in pieces_of(directory, part):
            for number, shard in enumerate(shards):
                covered[number] += _copy_overlap(shard, is_new[number], piece)
        for shard, found in zip(shards, covered, strict=True):
            if part.content == "full" and not part.left_out:
                check_covered(shard, found)


def _copy_overlap(shard: Shard, is_new: Tensor, piece: Piece) -> int:
    """Copy the overlap of a piece and a shard; return the number of weights.

    `is_new` is True for rows that no earlier piece of this part covered; the Adagrad sums of other rows are added.
    """
    own = piece.rows + piece.first_row - shard.first_row
    here = ((own >= 0) & (own < len(shard.weight))).nonzero().view(-1)
    width = shard.weight.shape[1]
    first = max(piece.first_column, shard.first_column)
    last = min(piece.first_column + piece.columns, shard.first_column + width)
    if shard.table != piece.table or first >= last or not len(here):
        return 0
    rows, device = own[here], shard.weight.device
    columns = slice(first - shard.first_column, last - shard.first_column)
    values = full_precision(piece)[here, first - piece.first_column : last - piece.first_column]
    shard.weight[rows.to(device), columns] = values.to(device)
    there = shard.adagrad_sum[rows.to(device)].masked_fill(is_new[rows].to(device), 0.0)
    share = (last - first) / width
    shard.adagrad_sum[rows.to(device)] = there + piece.adagrad_sum[here].to(device) * share
    is_new[rows] = False
    if shard.starts is not None:
        shard.starts.record_written(rows)
    return values.numel()


def _pieces(shards: Iterable[Shard], wanted: Sequence[Tensor]) -> Iterator[Piece]:
    """Yield the wanted rows of each table in the shards, piece by piece."""
    for shard in shards:
        at_once = max(PIECE_BYTES // (4 * shard.weight.shape[1] + 4), 1)
        of_shard = wanted[shard.table][shard.first_row : shard.first_row + len(shard.weight)]
        if shard.starts is not None:
            shard.starts.mask_initialised(of_shard)
        for first in range(0, len(shard.weight), at_once):
            last = min(first + at_once, len(shard.weight))
            rows = of_shard[first:last].nonzero().view(-1)
            if len(rows):
                there = (rows + first).to(shard.weight.device)
                yield Piece(
                    table=shard.table,
                    first_row=shard.first_row + first,
                    first_column=shard.first_column,
                    rows=rows,
                    weight=shard.weight.index_select(0, there).cpu(),
                    adagrad_sum=shard.adagrad_sum.index_select(0, there).cpu(),
                    columns=shard.weight.shape[1],
                )
