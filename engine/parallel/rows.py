"""The rows of divided tables that have changed: each process keeps those that lie with it.

A process sees the ids of its own samples alone, and those of others change its rows too. So each notes what it looks up
wherever it lies, and at a checkpoint the notes of all are put together: a byte for each row of all tables is sent.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

from engine.checkpoint.generations import Part
from engine.checkpoint.growth import Content, Policy
from engine.checkpoint.pieces import PIECE_BYTES, Piece, decode
from engine.checkpoint.storage import read_tensors
from engine.checkpoint.touched import Intervals, TouchedRows
from models.embeddings.role import EmbeddingTables
from models.embeddings.shards import Shard
from shunter.errors import CheckpointError


class DividedRows:
    """Knows which rows have to be kept next; every process calls `next` at the same time.

    Args:
        tables: Live tables, divided over the processes.
        device: Device of the batches.
        policy: How it is decided what a checkpoint holds.

    Attributes:
        parts: What the last checkpoint consists of.
    """

    def __init__(self, tables: EmbeddingTables, device: torch.device, policy: Policy) -> None:
        self._tables, self._device = tables, device
        self._intervals = Intervals(TouchedRows(tables, device), policy)
        self.parts: tuple[Part, ...] = ()

    @property
    def history(self) -> list[float]:
        """Shares of all rows that were kept since all of them were."""
        return self._intervals.history

    def note(self, values: Tensor, offsets: Tensor) -> None:
        """Note the rows of this process's part of a batch, right before it is trained."""
        self._intervals.touched.note(self._tables.rows_of_batch(values, offsets))

    def next(self, rank: int) -> tuple[Content, Iterator[Piece]]:
        """What is kept next, and the rows of it that this process writes; from here on a new interval counts.

        A table that every process holds is written by the first.
        """
        touched = self._intervals.touched
        of_all = touched.rows("since_last").to(self._device, torch.uint8)
        dist.all_reduce(of_all, dist.ReduceOp.MAX)
        touched.note_all(of_all.bool())
        content, wanted = self._intervals.next()
        by_table = None if wanted is None else wanted.split(self._tables.rows)
        shards = [shard for shard in self._tables.shards() if rank == 0 or not shard.replicated]
        return content, _pieces(shards, by_table)

    def go_on(self, parts: Sequence[Part], changed: Iterable[Piece], history: Sequence[float]) -> None:
        """Go on from a checkpoint.

        Args:
            parts: What it consists of.
            changed: The rows in all of them but the full one.
            history: `history` as it was then.
        """
        for piece in changed:
            self._intervals.touched.note_rows(piece.table, piece.rows + piece.first_row)
        self._intervals.go_on(history)
        self.parts = tuple(parts)


def pieces_of(directory: Path, part: Part) -> Iterator[Piece]:
    """The pieces of a part, of all processes."""
    for file in part.files:
        yield from decode(read_tensors(directory / file.name, file.sha256))


@torch.no_grad()
def lay_into(shards: Sequence[Shard], directory: Path, parts: Sequence[Part]) -> None:
    """Lay parts one upon the other into shards, divided in any way; see `engine.parallel.blocks.fill_shards`.

    Raises:
        CheckpointError: The full part does not cover a shard.
    """
    for part in parts:
        covered = [0] * len(shards)
        is_new = [torch.ones(len(shard.weight), dtype=torch.bool) for shard in shards]
        for piece in pieces_of(directory, part):
            for number, shard in enumerate(shards):
                covered[number] += _lay(shard, is_new[number], piece)
        for shard, found in zip(shards, covered, strict=True):
            if part.content == "full" and found != shard.weight.numel():
                raise CheckpointError(
                    f"The checkpoint holds {found} of the {shard.weight.numel()} weights of a part of table "
                    f"{shard.table}: it belongs to another model."
                )


def _lay(shard: Shard, is_new: Tensor, piece: Piece) -> int:
    """Copy what a piece and a shard have in common; returns the number of weights.

    Args:
        shard: Live.
        is_new: Which rows no piece of this part has brought a sum for; the others add to it.
        piece: In full precision.
    """
    assert isinstance(piece.weight, Tensor), "divided tables are kept in full precision"
    own = piece.rows + piece.first_row - shard.first_row
    here = ((own >= 0) & (own < len(shard.weight))).nonzero().view(-1)
    width = shard.weight.shape[1]
    first = max(piece.first_column, shard.first_column)
    last = min(piece.first_column + piece.columns, shard.first_column + width)
    if shard.table != piece.table or first >= last or not len(here):
        return 0
    rows, device = own[here], shard.weight.device
    columns = slice(first - shard.first_column, last - shard.first_column)
    values = piece.weight[here, first - piece.first_column : last - piece.first_column]
    shard.weight[rows.to(device), columns] = values.to(device)
    there = shard.adagrad_sum[rows.to(device)].masked_fill(is_new[rows].to(device), 0.0)
    share = (last - first) / width
    shard.adagrad_sum[rows.to(device)] = there + piece.adagrad_sum[here].to(device) * share
    is_new[rows] = False
    return values.numel()


def _pieces(shards: Iterable[Shard], wanted: Sequence[Tensor] | None) -> Iterator[Piece]:
    """The rows of shards, or those wanted of each table, piece by piece."""
    for shard in shards:
        at_once = max(PIECE_BYTES // (4 * shard.weight.shape[1] + 4), 1)
        for first in range(0, len(shard.weight), at_once):
            last = min(first + at_once, len(shard.weight))
            rows = torch.arange(last - first)
            if wanted is not None:
                rows = wanted[shard.table][shard.first_row + first : shard.first_row + last].nonzero().view(-1)
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
