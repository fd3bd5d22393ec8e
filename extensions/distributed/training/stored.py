"""Folder layout of the states of a training run in several processes.

    checkpoint-{number}/            the highest number is used, unless one of its files is damaged
        index.json                  state as numbers; of each file its checksum and the blocks of tables in it
        dense.safetensors           weights and optimiser state of the dense part
        process{rank}.safetensors   blocks of tables with their Adagrad sums, random state
        rows{rank}-{part}.safetensors    instead of these blocks where tables are large: all rows, or the changed ones
    best-{step}/                    the same without state, for the weights with the best validation NE so far

Blocks and rows have their position in their table, so that any number of processes can read them in any division. The
index of a checkpoint names its files of rows, including files of earlier checkpoints, in the order in which they are
applied. The folders of these files are kept as long as the index. For other machines, a state is a dictionary of files
(`engine.executors.checkpoint_files`).
"""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from shunter.checked_json import json_object, unseal
from shunter.engine.checkpoint.checked_files import PARTIAL, SHARDED, check_file, read_json, write_text
from shunter.engine.checkpoint.generations import Part
from shunter.engine.checkpoint.storage import load_weights, read_tensors
from shunter.engine.executors.checkpoint_files import Files
from shunter.errors import CheckpointError
from shunter.extensions.distributed.training.plan import MACHINE
from shunter.files import replace_file
from shunter.models.embeddings.shards import Shard, copy_block, overlap
from shunter.models.registry import Model

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
        """Return the block that a stored weight name describes; inverse of `weight_key`."""
        table, first_row, first_column = map(int, key.split(".")[1:4])
        return cls(table=table, first_row=first_row, first_column=first_column)

    @property
    def weight_key(self) -> str:
        """Name under which the weights of the block are stored, `[rows, columns]`."""
        return f"table.{self.table}.{self.first_row}.{self.first_column}.weight"

    @property
    def sum_key(self) -> str:
        """Name under which the Adagrad sums of the block are stored, `[rows]`."""
        return f"table.{self.table}.{self.first_row}.{self.first_column}.adagrad_sum"


@torch.no_grad()
def fill_shards(shards: Iterable[Shard], folder: Path, files: Mapping[str, Any], *, with_sums: bool) -> None:
    """Fill each shard from the blocks that overlap it, and read no other row.

    If the division of columns has changed, the Adagrad sum of a row is the mean of the sums of its parts, weighted by
    their columns. For whole rows this is exactly the sum of an undivided table. `files` names the `keys` of tensors of
    each file in the folder; their checksums have been compared.

    Raises:
        CheckpointError: the blocks do not cover a shard.
    """
    stored = [
        (folder / name, Block.from_key(key))
        for name, file in files.items()
        for key in file["keys"]
        if key.endswith(".weight")
    ]
    for shard in shards:
        covered = 0
        if with_sums:
            shard.adagrad_sum.zero_()
        for path, block in stored:
            if block.table == shard.table:
                covered += _fill(shard, path, block, with_sums=with_sums)
        check_covered(shard, covered)


def check_covered(shard: Shard, weights: int) -> None:
    """Raise `CheckpointError` if a checkpoint holds another number of weights than a shard has."""
    if weights != shard.weight.numel():
        raise CheckpointError(
            f"The checkpoint belongs to another model: it holds {weights} of the "
            f"{shard.weight.numel()} weights of a shard of table {shard.table}."
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


FORMAT = 1
INDEX, DENSE = "index.json", "dense.safetensors"
LAYERS = "layers."
BEST = "best-"


def checkpoints(directory: Path) -> list[Path]:
    """Return the folders of all checkpoints, the newest first."""
    folders = [path for path in directory.glob(f"{SHARDED}*") if path.suffix != PARTIAL]
    return sorted(folders, key=number_of, reverse=True)


def latest_checkpoint(directory: Path) -> Path | None:
    """Return the folder of the newest checkpoint."""
    return next(iter(checkpoints(directory)), None)


def file_of(rank: int) -> str:
    """Name of the file of a process."""
    return f"process{rank}.safetensors"


def number_of(folder: Path) -> int:
    """Return the number of a checkpoint, from the name of its folder."""
    return int(folder.name.removeprefix(SHARDED))


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of a checkpoint folder: its files, identity and state.

    Raises:
        CheckpointError: The index is damaged or of another version.
    """
    index = read_json(folder / INDEX)
    if index.get("format") != FORMAT or not isinstance(index.get("files"), dict):
        raise CheckpointError(
            f"The checkpoint {folder} was written by another version of Shunter: delete it and train again."
        )
    return index


def parts_of(index: dict[str, Any]) -> tuple[Part, ...]:
    """Return the index's parts with rows of tables; empty for a checkpoint of blocks (small tables, best weights)."""
    return tuple(map(Part.from_dict, index.get("parts", ())))


def bytes_in(folder: Path) -> int:
    """Bytes of all tensors below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def remove_older(directory: Path, keep: int, spared: frozenset[str] = frozenset()) -> None:
    """Remove old states: keep the newest states with their best weights, and the files in `spared`."""
    kept = checkpoints(directory)[:keep]
    names = {folder.name for folder in kept} | {name.partition("/")[0] for name in spared}
    for folder in kept:
        try:
            index = read_index(folder)
        except CheckpointError:
            continue
        names |= {file.name.partition("/")[0] for part in parts_of(index) for file in part.files}
        names.add(str(index.get("best")))
    for path in (*directory.glob(f"{SHARDED}*"), *directory.glob(f"{BEST}*")):
        if path.name not in names:
            shutil.rmtree(path, ignore_errors=True)


def remove_newer(directory: Path, folder: Path) -> None:
    """Remove the damaged states that are newer than a state, because they would count towards the kept generations."""
    for path in checkpoints(directory):
        if number_of(path) > number_of(folder):
            shutil.rmtree(path, ignore_errors=True)


class StoredLayout:
    """Layout of checkpoints of several processes, for copies (`engine.checkpoint.copies.Layout`)."""

    def lists(self, names: Iterable[str]) -> list[str]:
        """Return the names of the index files of all checkpoints, the newest first."""
        pattern = re.compile(rf"{SHARDED}(\d+)/{INDEX}")
        return sorted((name for name in names if pattern.fullmatch(name)), reverse=True)

    def files(self, name: str, read: Callable[[str], bytes]) -> dict[str, str | None]:
        """Return the files of a checkpoint with their sha256; the index itself has none.

        Raises:
            CheckpointError: The index of the state, or of its best weights, is damaged.
        """
        try:
            index = json_object(unseal(read(name)))
            parts = {file.name: file.sha256 for part in parts_of(index) for file in part.files}
            found: dict[str, str | None] = {**parts}
            for folder in {file.partition("/")[0] for file in parts} - {name.partition("/")[0]}:
                found[f"{folder}/{INDEX}"] = None
            found |= _own_files(name.partition("/")[0], index)
            if index["best"] is not None:
                best = json_object(unseal(read(f"{index['best']}/{INDEX}")))
                found |= {**_own_files(index["best"], best), f"{index['best']}/{INDEX}": None}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"The checkpoint file {name} is damaged ({error}): delete the checkpoint and train again."
            ) from error
        return found

    def fetched(self, directory: Path, name: str) -> None:
        """Do nothing: the fetched folder is already a valid checkpoint."""


def _own_files(folder: str, index: dict[str, Any]) -> dict[str, str | None]:
    return {f"{folder}/{file}": of["sha256"] for file, of in index["files"].items()}


def gather_weights(folder: Path, model: Model) -> None:
    """Load the weights of all processes into an undivided model; needs no process group.

    Args:
        folder: Result of `ShardedCheckpoint.best` for the same architecture.
        model: Undivided model in this process.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    index = read_json(folder / INDEX)
    for name, file in index["files"].items():
        check_file(folder / name, file["sha256"])
    dense = read_tensors(folder / DENSE, index["files"][DENSE]["sha256"])
    layers = {key.removeprefix(LAYERS): value for key, value in dense.items()}
    load_weights(model.layers, layers, folder / DENSE)
    fill_shards(model.embeddings.shards(), folder, index["files"], with_sums=False)


class ShardedWatch:
    """Watcher of a folder of states that reads the files that are new since the last read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        newest = latest_checkpoint(directory)
        self._seen = newest.name if newest else None
        self._read: set[str] = set()

    def changed(self) -> Files | None:
        """Return the files of the newest state that were added since the last call; None without changes.

        A concurrent writer can remove an old state meanwhile; the next call then finds the newer state.
        """
        newest = latest_checkpoint(self._directory)
        if newest is None or newest.name == self._seen:
            return None
        try:
            files = read_sharded(self._directory, without=self._read)
        except FileNotFoundError:
            return None
        self._seen = newest.name
        self._read |= files.keys()
        return files


def read_sharded(directory: Path, without: set[str] | None = None) -> Files:
    """Return the files of the newest state, and the machine speeds by which its tables were divided.

    Files named in `without` are omitted, because the receiver already has them.
    """
    newest = latest_checkpoint(directory)
    names = [MACHINE] if (directory / MACHINE).exists() else []
    if newest is not None:
        index = f"{newest.name}/{INDEX}"
        names += [*StoredLayout().files(index, lambda name: (directory / name).read_bytes()), index]
    return {name: (directory / name).read_bytes() for name in names if name not in (without or ())}


def write_sharded(files: Files, directory: Path, generations: int) -> None:
    """Write a state into a folder; after a kill at any moment, the former or the new state is complete.

    Args:
        files: Result of `read_sharded`, or its new files.
        directory: Folder of the states; created if absent.
        generations: Number of states to keep.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if MACHINE in files:
        write_text(directory / MACHINE, files[MACHINE].decode())
    folders = {directory / name.partition("/")[0] for name in files if "/" in name}
    # Best weights first, then states from old to new.
    for folder in sorted(folders, key=lambda one: -1 if one.name.startswith(BEST) else number_of(one)):
        partial = folder.with_name(f"{folder.name}{PARTIAL}")
        shutil.rmtree(partial, ignore_errors=True)
        target = folder if folder.exists() else partial
        target.mkdir(exist_ok=True)
        for name, content in files.items():
            if name.startswith(f"{folder.name}/"):
                replace_file(target / name.partition("/")[2], content)
        if target == partial:
            partial.rename(folder)
    remove_older(directory, generations)
