"""Folder layout of the states of a training run in several processes.

    checkpoint-{number}/            the highest number counts, unless a file of it is damaged
        index.json                  state as numbers; of each file its checksum and the blocks of tables in it
        dense.safetensors           weights and optimiser state of the dense part
        process{rank}.safetensors   blocks of tables with their Adagrad sums, random state
        rows{rank}-{part}.safetensors    instead of these blocks where tables are large: all rows, or the changed ones
    best-{step}/                    the same without state, for the weights with the best validation NE so far

Blocks and rows have their position in their table, so that any number of processes can read them in any division. The
index of a checkpoint names its files of rows, including files of earlier checkpoints, in the order in which they are
applied. The folders of these files are kept as long.
"""

import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from shunter.checked_json import json_object, unseal
from shunter.engine.checkpoint.checked_files import PARTIAL, SHARDED, check_file, read_json
from shunter.engine.checkpoint.generations import Part
from shunter.engine.checkpoint.storage import load_weights, read_tensors
from shunter.errors import CheckpointError
from shunter.extensions.distributed.training.blocks import StoredBlocks, fill_shards
from shunter.models.registry import Model

FORMAT = 1
INDEX, DENSE = "index.json", "dense.safetensors"
LAYERS = "layers."
BEST = "best-"


def checkpoints(directory: Path) -> list[Path]:
    """Folders of all states, the newest first."""
    folders = [path for path in directory.glob(f"{SHARDED}*") if path.suffix != PARTIAL]
    return sorted(folders, key=number_of, reverse=True)


def latest_checkpoint(directory: Path) -> Path | None:
    """Folder of the newest state."""
    return next(iter(checkpoints(directory)), None)


def checkpoint_name(number: int) -> str:
    """Name of the folder of a state."""
    return f"{SHARDED}{number:06d}"


def file_of(rank: int) -> str:
    """Name of the file of a process."""
    return f"process{rank}.safetensors"


def number_of(folder: Path) -> int:
    """Number of a state, by the name of its folder."""
    return int(folder.name.removeprefix(SHARDED))


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of a checkpoint folder.

    Raises:
        CheckpointError: It is damaged or of another version.
    """
    index = read_json(folder / INDEX)
    if index.get("format") != FORMAT or not isinstance(index.get("files"), dict):
        raise CheckpointError(f"The checkpoint {folder} is not of this version: start anew.")
    return index


def parts_of(index: dict[str, Any]) -> tuple[Part, ...]:
    """Return the parts of the tables; empty if they are blocks, as for small tables and the best weights."""
    return tuple(map(Part.from_dict, index.get("parts", ())))


def bytes_in(folder: Path) -> int:
    """Bytes of all tensors below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def remove_older(directory: Path, keep: int, spared: frozenset[str] = frozenset()) -> None:
    """Remove all files except those of the newest states, their best weights, and the spared files."""
    kept = checkpoints(directory)[:keep]
    names = {folder.name for folder in kept} | {name.partition("/")[0] for name in spared}
    for folder in kept:
        try:
            index = read_index(folder)
        except CheckpointError:
            continue
        names |= {file.name.partition("/")[0] for part in parts_of(index) for file in part.files}
        names.add(str(index.get("best")))
    _remove_all_but(directory, names)


def _remove_all_but(directory: Path, names: set[str]) -> None:
    for pattern in (f"{SHARDED}*", f"{BEST}*"):
        for path in directory.glob(pattern):
            if path.name not in names:
                shutil.rmtree(path, ignore_errors=True)


def remove_newer(directory: Path, folder: Path) -> None:
    """Remove the damaged states after a state, which would otherwise count as kept."""
    for path in checkpoints(directory):
        if number_of(path) > number_of(folder):
            shutil.rmtree(path, ignore_errors=True)


class StoredLayout:
    """Layout of checkpoints of several processes, for copies (`engine.checkpoint.copies.Layout`)."""

    def lists(self, names: Iterable[str]) -> list[str]:
        """Indexes of states, the newest first."""
        pattern = re.compile(rf"{SHARDED}(\d+)/{INDEX}")
        return sorted((name for name in names if pattern.fullmatch(name)), reverse=True)

    def files(self, name: str, read: Callable[[str], bytes]) -> dict[str, str | None]:
        """Return the files of a state with their sha256; the index has none.

        Raises:
            CheckpointError: Its index, or that of its best weights, is damaged.
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
            raise CheckpointError(f"The checkpoint {name} is damaged ({error}).") from error
        return found

    def fetched(self, directory: Path, name: str) -> None:
        """Do nothing: the fetched folder is already a valid checkpoint."""


def _own_files(folder: str, index: dict[str, Any]) -> dict[str, str | None]:
    return {f"{folder}/{file}": of["sha256"] for file, of in index["files"].items()}


def gather_weights(folder: Path, model: Model) -> None:
    """Put the weights of all processes into an ordinary model; needs no process group.

    Args:
        folder: `ShardedCheckpoint.best` of the same architecture.
        model: all of it in this process.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    index = read_json(folder / INDEX)
    for name, file in index["files"].items():
        check_file(folder / name, file["sha256"])
    dense = read_tensors(folder / DENSE, index["files"][DENSE]["sha256"])
    layers = {key.removeprefix(LAYERS): value for key, value in dense.items()}
    load_weights(model.layers, layers, folder / DENSE)
    fill_shards(model.embeddings.shards(), StoredBlocks(folder, index["files"]), with_sums=False)
