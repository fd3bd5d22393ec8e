"""The state of a training in many processes, valid whenever any of them is killed.

Every process writes its own shards. They gather in a folder under another name, which becomes the checkpoint by one
rename, after every file is on the disk. What has not been renamed does not count and is removed by the next one.

    checkpoint-{number}/            the highest number counts
        index.json                  state as numbers; of each file its checksum and the blocks of tables in it
        dense.safetensors           weights and optimiser state of the dense part
        process{rank}.safetensors   blocks of tables with their Adagrad sums, random state
        rows{rank}-{part}.safetensors    instead of these blocks where tables are large: all rows, or the changed ones
    best-{step}/                    the same without state, for the weights with the best validation NE so far

Blocks and rows say where in their table they belong, so that any number of processes can read them, divided in any way.
The index of a checkpoint names the files of rows that it consists of, those of earlier ones too, in the order in which
they are laid one upon the other; their folders stay as long.
"""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from engine.checkpoint.directory import CheckpointDirectory
from engine.checkpoint.generations import Part, StoredFile, check_upon, hash_of
from engine.checkpoint.growth import Content
from engine.checkpoint.keeping import BY_DEFAULT, FULL_PRECISION, Keeping
from engine.checkpoint.optimizer_state import optimizer_tensors, restore_optimizer, state_tensors
from engine.checkpoint.pieces import Piece, encode, filled
from engine.checkpoint.random_state import random_tensors, restore_random
from engine.checkpoint.storage import (
    check_file,
    load_weights,
    read_json,
    read_tensors,
    sync_directory,
    write_tensors,
    write_text,
)
from engine.checkpoint.tables import bytes_of
from engine.parallel.blocks import Block, StoredBlocks, fill_shards
from engine.parallel.rows import DividedRows, lay_into, pieces_of
from engine.parallel.tower_model import HostRecommender
from models.embeddings.sharded import ShardedEmbeddings
from models.registry import Model
from models.shampoo import Shampoo
from shunter.errors import CheckpointError, TrainingError

FORMAT = 1
INDEX, DENSE = "index.json", "dense.safetensors"
LAYERS = "layers."


class ShardedCheckpoint(CheckpointDirectory[Model]):
    """The checkpoint of one training; every process calls each method at the same time.

    Args:
        directory: a folder of its own, which every process sees; made when it is not there.
        identity: Properties that a checkpoint must share with the training that resumes from it.
    """

    def __init__(self, directory: Path, identity: dict[str, Any], keeping: Keeping = BY_DEFAULT) -> None:
        super().__init__(directory, identity, keeping)
        self.rank, self.processes = dist.get_rank(), dist.get_world_size()
        self._best_name: str | None = None
        self._rows: DividedRows | None = None

    @property
    def best(self) -> Path:
        """Folder of the best weights."""
        assert self._best_name is not None, "an epoch has been evaluated"
        return self.directory / self._best_name

    def exists(self) -> bool:
        """Whether there is a checkpoint.

        Raises:
            CheckpointError: there is one of a single process.
        """
        if super().exists():
            raise CheckpointError(
                f"The checkpoint in {self.directory} was written by a single process: resume it with one process or "
                f"start anew."
            )
        return holds_sharded_checkpoint(self.directory)

    def keep_best(self, model: Model, step: int) -> None:
        """Write the weights that are the best so far; they count from the next `write` on."""
        if isinstance(model, HostRecommender):
            model.gather_towers()
        blocks = {key: tensor for key, tensor in self._own_blocks(model).items() if key.endswith("weight")}
        self._best_name = f"best-{step}"
        self._write(self._best_name, blocks, _dense_weights(model), {})

    def restore_best(self, model: Model) -> None:
        """Put the best weights into the model; the Adagrad sums stay."""
        index = self._read_index(self.best)
        self._read_weights(model, index, self.best, with_sums=False)

    def follow(self, model: Model) -> None:
        """Be ready to keep the rows that change, where the tables of all processes are large together."""
        tables = model.embeddings
        if isinstance(tables, ShardedEmbeddings) and self.keeping.is_incremental(sum(_from_all(bytes_of(tables)))):
            self._rows = DividedRows(tables, next(model.parameters()).device, self.keeping.policy)

    def note_rows(self, values: Tensor, offsets: Tensor) -> None:
        """Note the rows of this process's part of a batch, right before it is trained."""
        if self._rows is not None:
            self._rows.note(values, offsets)

    def write(
        self, model: Model, optimizer: torch.optim.Optimizer, state: dict[str, Any], *, may_skip: bool = False
    ) -> None:
        """Replace the checkpoint.

        Args:
            model: its shards and dense weights.
            optimizer: Optimiser of the dense part.
            state: everything else, as plain values, with the number of the `step`.
            may_skip: Without meaning here, for training waits until it is written.

        Raises:
            TrainingError: a weight is not finite; the former checkpoint stays.
        """
        with self._stall():
            self._replace(model, optimizer, state)

    def _replace(self, model: Model, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        if isinstance(model, HostRecommender):
            model.gather_towers(optimizer)
        own = self._own_blocks(model)
        dense = {**_dense_weights(model), **_full_state(optimizer)}
        self._check_finite({**own, **dense}, state["step"])
        started = time.perf_counter()
        rows = None
        if self._rows is not None:
            own, rows = {}, self._rows.next(self.rank)
        own |= random_tensors(next(model.parameters()).device)
        latest = latest_checkpoint(self.directory)
        name = f"checkpoint-{(_number(latest) + 1 if latest else 0):06d}"
        values = {"identity": self._identity, "state": state, "best": self._best_name}
        parts = self._write(name, own, dense, values, rows)
        if self._rows is not None:
            self._rows.parts = parts
        figures = self.figures
        figures.written += 1
        figures.full += rows is None or rows[0] == "full"
        figures.write_seconds += time.perf_counter() - started
        if self.rank == 0:
            _remove_all_but(self.directory, name, self._best_name, *_folders(parts))
            figures.bytes_kept = max(figures.bytes_kept, _bytes_in(self.directory))

    def read(self, model: Model, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Put model, optimiser and random state back, and return the `state` that was written with them.

        With another number of processes than wrote it, the random state goes on from the seed and the step instead.

        Raises:
            CheckpointError: a file is missing or damaged, or belongs to another training.
        """
        folder = latest_checkpoint(self.directory)
        assert folder is not None, "there is a checkpoint"
        index = self._read_index(folder)
        try:
            found, state, self._best_name = index["identity"], index["state"], index["best"]
        except KeyError as error:
            raise CheckpointError(f"The checkpoint {folder} is not of this version (it lacks {error}).") from error
        self.check_identity(found, folder)
        if self._best_name is not None:  # a damaged file is better found now than when the training ends
            self._check_files(self._read_index(self.best), self.best)
        dense = self._read_weights(model, index, folder, with_sums=True)
        if self._rows is not None and (parts := _parts_of(index)):
            changed = (piece for part in parts[1:] for piece in pieces_of(self.directory, part))
            self._rows.go_on(parts, changed, index["history"])
        whole = {"part": {"rank": 0, "ranks": 1}} if isinstance(optimizer, Shampoo) else {}
        restore_optimizer(optimizer, dense, **whole)
        if index["processes"] == self.processes:
            path = folder / _file_of(self.rank)
            own = read_tensors(path, index["files"][path.name]["sha256"])
            try:
                restore_random(own, next(model.parameters()).device)
            except KeyError as error:
                raise CheckpointError(
                    f"The checkpoint {path} lacks {error}: it was written on another kind of device."
                ) from error
        else:
            torch.manual_seed(torch.initial_seed() + state["step"])
        return state

    def _own_blocks(self, model: Model) -> dict[str, Tensor]:
        """What this process writes; a table that every process holds is written by the first."""
        tensors: dict[str, Tensor] = {}
        for shard in model.embeddings.shards():
            if self.rank == 0 or not shard.replicated:
                block = Block.of(shard)
                tensors[block.weight_key], tensors[block.sum_key] = shard.weight, shard.adagrad_sum
        return tensors

    def _check_finite(self, tensors: dict[str, Tensor], step: int) -> None:
        wrong = (name for name, value in tensors.items() if not torch.isfinite(value).all())
        names = [name for name in _from_all(next(wrong, None)) if name]
        if names:
            raise TrainingError(
                f"After step {step} {names[0]} holds a value that is not finite: lower the learning rates; "
                f"the last good checkpoint is kept."
            )

    def _write(
        self,
        name: str,
        own: dict[str, Tensor],
        dense: dict[str, Tensor],
        values: dict[str, Any],
        rows: tuple[Content, Iterator[Piece]] | None = None,
    ) -> tuple[Part, ...]:
        """Write a folder with a part of each process, complete or not at all; returns the parts of the tables."""
        partial, final = self.directory / f"{name}.partial", self.directory / name
        if self.rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(final, ignore_errors=True)  # the best of a repeated step; no checkpoint names it
            partial.mkdir()
        dist.barrier()
        files = {_file_of(self.rank): {"sha256": write_tensors(partial / _file_of(self.rank), own), "keys": list(own)}}
        if self.rank == 0:
            files[DENSE] = {"sha256": write_tensors(partial / DENSE, dense), "keys": []}
        all_files = {name: file for part in _from_all(files) for name, file in part.items()}
        parts = ()
        if rows is not None and self._rows is not None:
            content, pieces = rows
            before = self._rows.parts
            upon = {"full": (), "since_full": before[:1], "since_last": before}[content]
            own_files = [
                StoredFile(name=f"{name}/{file}", sha256=write_tensors(partial / file, tensors))
                for file, tensors in self._row_files(pieces)
            ]
            of_all = tuple(file for part in _from_all(own_files) for file in part)
            parts = (*upon, Part(content=content, upon=hash_of(upon), files=of_all))
            values |= {"parts": [asdict(part) for part in parts], "history": self._rows.history}
        if self.rank == 0:
            index = {"format": FORMAT, "processes": self.processes, "files": all_files, **values}
            write_text(partial / INDEX, json.dumps(index, indent=1))
            partial.rename(final)
            sync_directory(self.directory)
        dist.barrier()
        self.figures.bytes_written += _bytes_in(final)
        return parts

    def _row_files(self, pieces: Iterator[Piece]) -> Iterator[tuple[str, dict[str, Tensor]]]:
        encoded = (encode(piece, FULL_PRECISION, number) for number, piece in enumerate(pieces))
        for position, tensors in enumerate(filled(encoded)):
            yield f"rows{self.rank}-{position:04d}.safetensors", tensors

    def _read_index(self, folder: Path) -> dict[str, Any]:
        index = read_json(folder / INDEX)
        if index.get("format") != FORMAT or not isinstance(index.get("files"), dict):
            raise CheckpointError(f"The checkpoint {folder} is not of this version: start anew.")
        return index

    def _check_files(self, index: dict[str, Any], folder: Path) -> None:
        """Compare all files with their checksums, each process its part of them; all fail when one does."""
        problem, parts = None, _parts_of(index)
        files = [(folder / name, file["sha256"]) for name, file in sorted(index["files"].items())]
        files += [(self.directory / file.name, file.sha256) for part in parts for file in part.files]
        try:
            check_upon(parts, self.directory)
            for path, checksum in files[self.rank :: self.processes]:
                check_file(path, checksum)
        except CheckpointError as error:
            problem = str(error)
        problems = [message for message in _from_all(problem) if message]
        if problems:
            raise CheckpointError(problems[0])

    def _read_weights(self, model: Model, index: dict[str, Any], folder: Path, *, with_sums: bool) -> dict[str, Tensor]:
        """Fill the model from a folder; returns what is in the file of the dense part."""
        self._check_files(index, folder)
        dense = read_tensors(folder / DENSE, index["files"][DENSE]["sha256"])
        layers = {key.removeprefix(LAYERS): value for key, value in dense.items() if key.startswith(LAYERS)}
        load_weights(model.layers, layers, folder / DENSE)
        if parts := _parts_of(index):
            lay_into(list(model.embeddings.shards()), self.directory, parts)
        else:
            fill_shards(model.embeddings.shards(), StoredBlocks(folder, index["files"]), with_sums=with_sums)
        return dense


def holds_sharded_checkpoint(directory: Path) -> bool:
    """Whether many processes have left a checkpoint in a folder."""
    return latest_checkpoint(directory) is not None


def latest_checkpoint(directory: Path) -> Path | None:
    """The checkpoint that counts."""
    folders = [path for path in directory.glob("checkpoint-*") if path.suffix != ".partial"]
    return max(folders, key=_number, default=None)


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


def _dense_weights(model: Model) -> dict[str, Tensor]:
    return {f"{LAYERS}{name}": tensor for name, tensor in model.layers.state_dict().items()}


def _full_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of the dense optimiser; Shampoo's is divided over the processes, and gathers in the first."""
    if not isinstance(optimizer, Shampoo):
        return optimizer_tensors(optimizer)
    state = optimizer.full_state_dict()
    return {} if state is None else state_tensors(state)


def _from_all(value: Any) -> Sequence[Any]:
    """A small value of every process, in their order."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def _parts_of(index: dict[str, Any]) -> tuple[Part, ...]:
    """The parts of the tables; none where they are blocks, as of small tables and of the best weights."""
    return tuple(map(Part.from_dict, index.get("parts", ())))


def _folders(parts: Sequence[Part]) -> set[str]:
    return {file.name.partition("/")[0] for part in parts for file in part.files}


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def _file_of(rank: int) -> str:
    return f"process{rank}.safetensors"


def _number(folder: Path) -> int:
    return int(folder.name.removeprefix("checkpoint-"))


def _remove_all_but(directory: Path, *kept: str | None) -> None:
    for pattern in ("checkpoint-*", "best-*"):
        for path in directory.glob(pattern):
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)
