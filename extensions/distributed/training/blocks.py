"""Blocks of tables in files, from which shards of any division are assembled."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from shunter.errors import CheckpointError
from shunter.models.embeddings.shards import Shard, copy_block, overlap

VALUES_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Block:
    """Position of a piece of a table, used as the name of its tensors in a file."""

    table: int
    first_row: int
    first_column: int

    @classmethod
    def of(cls, shard: Shard) -> Self:
        """Return the block of a shard."""
        return cls(table=shard.table, first_row=shard.first_row, first_column=shard.first_column)

    @classmethod
    def from_key(cls, key: str) -> Self:
        """Inverse of `weight_key`."""
        table, first_row, first_column = map(int, key.split(".")[1:4])
        return cls(table=table, first_row=first_row, first_column=first_column)

    @property
    def weight_key(self) -> str:
        """Name of the weights, `[rows, columns]`."""
        return f"table.{self.table}.{self.first_row}.{self.first_column}.weight"

    @property
    def sum_key(self) -> str:
        """Name of the Adagrad sums, `[rows]`."""
        return f"table.{self.table}.{self.first_row}.{self.first_column}.adagrad_sum"


class StoredBlocks:
    """The blocks in the files of a checkpoint.

    Args:
        folder: Folder of the files, whose checksums have been compared.
        files: The `keys` of the tensors of each file.
    """

    def __init__(self, folder: Path, files: Mapping[str, Any]) -> None:
        self._places = [
            (folder / name, Block.from_key(key))
            for name, file in files.items()
            for key in file["keys"]
            if key.endswith(".weight")
        ]

    def of_table(self, table: int) -> Iterator[tuple[Path, Block]]:
        """Return the blocks of one table, and the file of each."""
        return ((path, block) for path, block in self._places if block.table == table)


@torch.no_grad()
def fill_shards(shards: Iterable[Shard], stored: StoredBlocks, *, with_sums: bool) -> None:
    """Fill each shard from the blocks that overlap it, and read no other row.

    If the division of columns has changed, the Adagrad sum of a row is the mean of the sums of its parts, weighted by
    their columns. For whole rows this is exactly the sum of an undivided table.

    Raises:
        CheckpointError: the blocks do not cover a shard.
    """
    for shard in shards:
        covered = 0
        if with_sums:
            shard.adagrad_sum.zero_()
        for path, block in stored.of_table(shard.table):
            covered += _fill(shard, path, block, with_sums=with_sums)
        if covered != shard.weight.numel():
            raise CheckpointError(
                f"The checkpoint holds {covered} of the {shard.weight.numel()} weights of a part of table "
                f"{shard.table}: it belongs to another model."
            )


def _fill(shard: Shard, path: Path, block: Block, *, with_sums: bool) -> int:
    """Copy the overlap of a block and a shard; return the number of weights."""
    from safetensors import safe_open

    # As NumPy's: torch's own way maps the whole file as private memory, which a limit on a process's data counts.
    with safe_open(path, framework="numpy") as file:
        weight = file.get_slice(block.weight_key)
        rows_there, columns_there = weight.get_shape()
        rows, own_rows = overlap(block.first_row, rows_there, shard.first_row, len(shard.weight))
        width = shard.weight.shape[1]
        columns, _ = overlap(block.first_column, columns_there, shard.first_column, width)
        shared_rows, shared_columns = rows.stop - rows.start, columns.stop - columns.start
        if not shared_rows or not shared_columns:
            return 0
        at_once = max(VALUES_AT_ONCE // columns_there, 1)
        for first in range(0, shared_rows, at_once):  # neither they nor the shard need fit into memory
            start, count = rows.start + first, min(at_once, shared_rows - first)
            part, own = slice(start, start + count), slice(own_rows.start + first, own_rows.start + first + count)
            copy_block(torch.from_numpy(weight[part]), block.first_row + start, block.first_column, shard)
            if with_sums:
                sums = torch.from_numpy(file.get_slice(block.sum_key)[part]).to(shard.weight.device)
                shard.adagrad_sum[own] += sums * (shared_columns / width)
    return shared_rows * shared_columns
