"""Blocks of embedding tables, and the overlap of two blocks."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class RowStarts(Protocol):
    """Record of the initialised rows of a block; the other rows have no weights before their first lookup."""

    def mask_initialised(self, wanted: Tensor) -> None:
        """Set entries of `wanted`, a bool for each row on the CPU, to False in place for rows without weights."""
        ...

    def begin(self, rows: Tensor) -> None:
        """Initialise rows before parts of them are overwritten; rows are distinct, relative to the block."""
        ...

    def record_written(self, rows: Tensor) -> None:
        """Record that complete rows were written; rows are distinct, relative to the block."""
        ...


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Block of a table in this process.

    Attributes:
        table: Index of the table.
        first_row: First row of the block within the table.
        first_column: First column of the block within the table.
        weight: View of the block in the memory that training updates, `[rows, columns]`.
        adagrad_sum: View of the optimiser state of these rows, `[rows]`.
        replicated: Whether every process has this block.
        starts: Record of the rows that are initialised; None if all are.
    """

    table: int
    first_row: int
    first_column: int
    weight: Tensor
    adagrad_sum: Tensor
    replicated: bool
    starts: RowStarts | None = None


def copy_block(source: Tensor, first_row: int, first_column: int, shard: Shard) -> None:
    """Copy the overlap of a block of weights and a shard into the shard.

    Args:
        source: Weights, `[rows, columns]`.
        first_row: First row of the weights within the table.
        first_column: First column of the weights within the table.
        shard: Block of the same table; its weights are written, its sums are not.
    """
    rows, own_rows = overlap(first_row, len(source), shard.first_row, len(shard.weight))
    columns, own_columns = overlap(first_column, source.shape[1], shard.first_column, shard.weight.shape[1])
    shard.weight[own_rows, own_columns] = source[rows, columns].to(shard.weight.device)
    if shard.starts is not None:
        shard.starts.record_written(torch.arange(own_rows.start, own_rows.stop))


def overlap(first: int, length: int, own_first: int, own_length: int) -> tuple[slice, slice]:
    """Return the overlap of two ranges, relative to the start of each range."""
    start = max(first, own_first)
    end = max(start, min(first + length, own_first + own_length))
    return slice(start - first, end - first), slice(start - own_first, end - own_first)
