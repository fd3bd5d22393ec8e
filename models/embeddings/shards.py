"""Blocks of embedding tables, and what two of them have in common."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class RowStarts(Protocol):
    """Which rows of a block have begun: the others are not there before somebody asks for them."""

    def keep_begun(self, wanted: Tensor) -> None:
        """Of a bool of each row, on the CPU, let those be false that have not begun; in place, for there are many."""
        ...

    def begin(self, rows: Tensor) -> None:
        """Let rows hold what was drawn for them, before a part of them is written; distinct, from the block's first."""
        ...

    def note_written(self, rows: Tensor) -> None:
        """Whole rows were written; distinct, counted from the block's first."""
        ...


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A block of a table that this process holds.

    Attributes:
        table: Number of the table.
        first_row: First row of the block within the table.
        first_column: First column of the block within the table.
        weight: `[rows, columns]`, the memory that is trained.
        adagrad_sum: `[rows]`, the optimiser's state of these rows, likewise.
        replicated: Whether every process holds this block.
        starts: Which rows have begun; None where all have.
    """

    table: int
    first_row: int
    first_column: int
    weight: Tensor
    adagrad_sum: Tensor
    replicated: bool
    starts: RowStarts | None = None


def copy_block(source: Tensor, first_row: int, first_column: int, shard: Shard) -> None:
    """Copy the part of a table that a block and a shard have in common into the shard.

    Args:
        source: `[rows, columns]` weights.
        first_row: First row of the block within the table.
        first_column: First column of the block within the table.
        shard: Block of the same table; its weights are written, its sums are not.
    """
    rows, own_rows = overlap(first_row, len(source), shard.first_row, len(shard.weight))
    columns, own_columns = overlap(first_column, source.shape[1], shard.first_column, shard.weight.shape[1])
    shard.weight[own_rows, own_columns] = source[rows, columns].to(shard.weight.device)
    if shard.starts is not None:
        shard.starts.note_written(torch.arange(own_rows.start, own_rows.stop))


def overlap(first: int, length: int, own_first: int, own_length: int) -> tuple[slice, slice]:
    """What two ranges share, counted from the start of either."""
    start = max(first, own_first)
    end = max(start, min(first + length, own_first + own_length))
    return slice(start - first, end - first), slice(start - own_first, end - own_first)
