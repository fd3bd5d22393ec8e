"""The state of a training in many processes, valid whenever any of them is killed, kept while the training goes on.

Every process copies its own shards, or the rows of them that have changed, which is all that training waits for, and a
thread of its own writes them. They gather in a folder under another name, which becomes the checkpoint by one rename,
after every file is on the disk (`shunter.engine.parallel.stored`). What has not been renamed does not count and is
removed by the next one. The threads speak to each other in a process group of their own, so that no message of theirs
meets one of the training's. Where copies would take too much memory, the same is done while training waits.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch import distributed as dist

from shunter.engine.checkpoint.background import WRITER
from shunter.engine.checkpoint.checked_files import check_file
from shunter.engine.checkpoint.directory import (
    COPIED_SHARE_OF_FREE_MEMORY,
    LONG_FROM_BYTES,
    VALUES_CHECKED_AT_ONCE,
    CheckpointDirectory,
)
from shunter.engine.checkpoint.generations import check_upon, history_of
from shunter.engine.checkpoint.keeping import BY_DEFAULT, FULL_PRECISION, CheckpointFigures, Keeping
from shunter.engine.checkpoint.optimizer_state import optimizer_tensors, restore_optimizer, state_tensors
from shunter.engine.checkpoint.random_state import random_tensors, restore_random
from shunter.engine.checkpoint.storage import holds_sharded_checkpoint, load_weights, read_tensors
from shunter.engine.checkpoint.tables import bytes_of
from shunter.engine.memory import available_memory_bytes
from shunter.engine.parallel.agreement import all_do, from_all
from shunter.engine.parallel.blocks import Block, StoredBlocks, fill_shards
from shunter.engine.parallel.folder_writer import FolderWriter
from shunter.engine.parallel.folders import Folders, files_in
from shunter.engine.parallel.host_model import HostModel
from shunter.engine.parallel.rows import DividedRows, OwnRows, lay_into
from shunter.engine.parallel.stored import (
    BEST,
    DENSE,
    LAYERS,
    StoredLayout,
    bytes_in,
    checkpoint_name,
    checkpoints,
    file_of,
    number_of,
    parts_of,
    read_index,
    remove_newer,
    remove_older,
)
from shunter.engine.parallel.tiered import TieredShards
from shunter.errors import CheckpointError, ShunterError, TrainingError
from shunter.models.embeddings.sharded import ShardedEmbeddings
from shunter.models.registry import Model

log = logging.getLogger(__name__)

Job = Callable[[], None]


@runtime_checkable
class DividedOptimizer(Protocol):
    """Optimizer whose state the processes of one training divide."""

    def full_state_dict(self) -> dict[str, Any] | None:
        """Return the whole state in the first process, None in the others; all processes call it."""
        ...


class ShardedCheckpoint(CheckpointDirectory[Model]):
    """The checkpoint of one training; every process calls each method at the same time.

    Args:
        directory: a folder of its own, which every process sees; made when it is not there.
        identity: Properties that a checkpoint must share with the training that resumes from it.
        keeping: How they are kept; the best weights always in full precision.
        folders: Who sees which folder under that name; None is one that all see.
    """

    def __init__(
        self,
        directory: Path,
        identity: dict[str, Any],
        keeping: Keeping = BY_DEFAULT,
        folders: Folders | None = None,
    ) -> None:
        super().__init__(directory, identity, keeping)
        self.rank, self.processes = dist.get_rank(), dist.get_world_size()
        self._group: Any = dist.new_group(backend="gloo")  # of the threads that write
        self._folders = folders or Folders.shared(self.processes)
        self._writes = FolderWriter(directory, self._throttle, self._group, self._folders)
        self._best_name: str | None = None
        self._write_best: Job | None = None
        self._rows: DividedRows | None = None
        self._copy = self._copy_of(StoredLayout()) if self.rank == 0 else None

    def fetch(self) -> None:
        """Fetch the newest state from where a copy is kept, if none lies here; the first process does.

        Where the processes see several folders, all of them get what lies in that of the first.

        Raises:
            CheckpointError: The address cannot be read.
        """
        if self.keeping.copied_to is not None:
            all_do(super().fetch)
        self._folders.spread(self.directory, files_in(self.directory) if self.rank == 0 else ())

    @property
    def best(self) -> Path:
        """Folder of the best weights; what is still to be written of them is."""
        assert self._best_name is not None, "an epoch has been evaluated"
        with self._stall():
            self._writer.wait()
            if self._write_best is not None:
                job, self._write_best = self._write_best, None
                job()
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

    def follow(self, model: Model) -> None:
        """Be ready to keep the rows that change, where the tables of all processes are large together."""
        tables = model.embeddings
        if not isinstance(tables, ShardedEmbeddings | TieredShards):
            return
        table_bytes = sum(from_all(bytes_of(tables)))
        if self.keeping.is_incremental(table_bytes):
            self._rows = DividedRows(tables, next(model.parameters()).device, self.keeping, table_bytes)
            self._bags_of = model.bags_of

    def note_rows(self, values: Tensor, offsets: Tensor) -> None:
        """Note the rows of this process's part of a batch, right before it is trained."""
        if self._rows is not None:
            self._rows.note(*self._bags_of(values, offsets))

    def keep_best(self, model: Model, step: int) -> None:
        """Keep the weights that are the best so far; they count from the next `write` on."""
        with self._stall():
            if isinstance(model, HostModel):
                model.gather_layers()
            own = self._own_blocks(model, is_whole=True)
            blocks = {key: tensor for key, tensor in own.items() if key.endswith("weight")}
            dense = _dense_weights(model)
            name = self._best_name = f"{BEST}{step}"
            self._write_best = None  # the old copy goes first: both together would raise the peak of the memory
            may_copy = self._may_copy(model, {**blocks, **dense})
            if may_copy:
                blocks, dense = _copies(blocks), _copies(dense)

            def job() -> None:
                self.figures.bytes_written += self._writes.write(name, blocks, dense, {}).size

            if may_copy:
                self._write_best = job
            else:
                self._writer.wait()
                job()

    def restore_best(self, model: Model) -> None:
        """Put the best weights into the model; the Adagrad sums stay."""
        folder = self.best
        self._read_weights(model, read_index(folder), folder, with_sums=False)

    def write(
        self, model: Model, optimizer: torch.optim.Optimizer, state: dict[str, Any], *, may_skip: bool = False
    ) -> None:
        """Begin to write the state as it is now.

        Args:
            model: its shards and dense weights.
            optimizer: Optimiser of the dense part.
            state: everything else, as plain values, with the number of the `step`.
            may_skip: Whether nothing is done while a process is still writing the one before; else that is waited for.

        Raises:
            TrainingError: a weight was not finite in the one before; the last good checkpoint stays.
            CheckpointError: a process could not write the one before.
        """
        with self._stall():
            if may_skip and any(from_all(self._writer.is_busy)):
                self.figures.skipped += 1
                return
            self._writer.wait()
            self._begin(model, optimizer, state)

    def _begin(
        self, model: Model, optimizer: torch.optim.Optimizer, state: dict[str, Any], *, may_skip: bool = False
    ) -> None:
        """Copy what is to be kept as it is, and hand it to the writer; where that cannot be, write it here."""
        if isinstance(model, HostModel):
            model.gather_layers(optimizer)
        own, dense = self._own_blocks(model), {**_dense_weights(model), **_full_state(optimizer)}
        may_copy = self._may_copy(model, {**own, **dense})
        if not may_copy:
            all_do(lambda: _check_finite([*own.items(), *dense.items()], state["step"]), self._group)
        blocks: dict[str, Tensor] = own
        rows: OwnRows | None = None
        if self._rows is not None:
            blocks, rows = {}, self._rows.next(self.rank, self.figures.restores)
            if may_copy:
                rows = replace(rows, pieces=list(rows.pieces))
        if may_copy:
            blocks, dense = _copies(blocks), _copies(dense)
        blocks |= random_tensors(next(model.parameters()).device)
        values = {"identity": self._identity, "state": json.loads(json.dumps(state)), "best": self._best_name}
        write_best, self._write_best = self._write_best, None

        def job() -> None:
            if write_best is not None:
                write_best()
            self._add_state(blocks, dense, values, rows)

        if may_copy:
            is_long = sum(tensor.nbytes for tensor in own.values()) >= LONG_FROM_BYTES
            self._writer.start(job, gives_way=is_long)
        else:
            job()

    def _add_state(
        self,
        own: dict[str, Tensor],
        dense: dict[str, Tensor],
        values: dict[str, Any],
        rows: OwnRows | None,
    ) -> None:
        """Write a state, then remove what is too old."""
        started, processor_started = time.perf_counter(), time.thread_time()
        pieces = rows.pieces if rows is not None and isinstance(rows.pieces, list) else []
        copied = [(f"table {one.table}", one.weight) for one in pieces if isinstance(one.weight, Tensor)]
        named = [*own.items(), *dense.items(), *copied]
        all_do(lambda: _check_finite(named, values["state"]["step"]), self._group)
        newest = next(iter(checkpoints(self.directory)), None)
        name = checkpoint_name(number_of(newest) + 1 if newest else 0)
        figures = self.figures
        figures.written += 1
        figures.full += rows is None or rows.content == "full"
        figures.bits = FULL_PRECISION if rows is None else rows.bits
        upon, history = (self._rows.parts, self._rows.history) if self._rows is not None else ((), [])
        written = self._writes.write(
            name, own, dense, values | {"figures": asdict(figures), "history": history}, rows=rows, before=upon
        )
        figures.bytes_written += written.size
        if self._rows is not None:
            self._rows.parts = written.parts
        figures.write_seconds += time.perf_counter() - started
        if threading.current_thread().name == WRITER:  # else it is counted as a stall
            figures.processor_seconds += time.thread_time() - processor_started
        if self._folders.is_kept_by(self.rank):
            spared = self._copy.names_in_work if self._copy is not None else frozenset[str]()
            remove_older(self.directory, self.keeping.generations, spared)
            figures.bytes_kept = max(figures.bytes_kept, bytes_in(self.directory))
            if self._copy is not None:
                self._copy.follow(self.directory, figures)

    def read(self, model: Model, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Put model, optimiser and random state back, and return the `state` that was written with them.

        The newest state that is whole is taken; what is wrong with a newer one is said in a warning. With another
        number of processes than wrote it, the random state goes on from the seed and the step instead.

        Raises:
            CheckpointError: none is whole, or they belong to another training.
        """
        folder, index = self._newest_of_all()
        dist.barrier()  # all have looked at the newer ones before they go
        if self._folders.is_kept_by(self.rank):
            remove_newer(self.directory, folder)
        self._best_name, state = index["best"], index["state"]
        dense = self._read_weights(model, index, folder, with_sums=True)
        if self._rows is not None and (parts := parts_of(index)):
            self._rows.go_on(self.directory, parts, history_of(index["history"]))
        whole = {"part": {"rank": 0, "ranks": 1}} if isinstance(optimizer, DividedOptimizer) else {}
        restore_optimizer(optimizer, dense, **whole)
        if index["processes"] == self.processes:
            path = folder / file_of(self.rank)
            own = read_tensors(path, index["files"][path.name]["sha256"])
            try:
                restore_random(own, next(model.parameters()).device)
            except KeyError as error:
                raise CheckpointError(
                    f"The checkpoint {path} lacks {error}: it was written on another kind of device."
                ) from error
        else:
            torch.manual_seed(torch.initial_seed() + state["step"])
        self.figures = CheckpointFigures.of(index.get("figures", {}))
        self.figures.restores += 1
        return state

    def _newest_of_all(self) -> tuple[Path, dict[str, Any]]:
        """The newest state whose files are all as they were written, and its index; the same in all processes."""
        problems: list[ShunterError] = []
        for folder in checkpoints(self.directory):
            try:
                index = self._checked_index(folder)
            except CheckpointError as error:
                problems.append(error)
                continue
            self.check_identity(index["identity"], folder)
            if problems and self.rank == 0:
                log.warning(
                    "%s The training goes on from the checkpoint before it, after step %d.",
                    problems[0],
                    index["state"]["step"],
                )
            return folder, index
        raise problems[0]

    def _checked_index(self, folder: Path) -> dict[str, Any]:
        index: dict[str, Any] = {}
        all_do(lambda: index.update(read_index(folder)))
        if missing := {"identity", "state", "best", "processes"} - index.keys():
            raise CheckpointError(f"The checkpoint {folder} is not of this version (it lacks {min(missing)!r}).")
        self._check_files(index, folder)
        if index["best"] is not None:  # a damaged file is better found now than when the training ends
            best: dict[str, Any] = {}
            all_do(lambda: best.update(read_index(self.directory / index["best"])))
            self._check_files(best, self.directory / index["best"])
        return index

    def _own_blocks(self, model: Model, *, is_whole: bool = False) -> dict[str, Tensor]:
        """What this process writes; a table that every process holds is written by the first.

        Args:
            model: Whose tables they are.
            is_whole: Whether rows that nobody has asked for yet are written too; of rows that are kept apart.
        """
        tensors: dict[str, Tensor] = {}
        shards = model.embeddings.shards() if self._rows is None or is_whole else model.embeddings.begun_shards()
        for shard in shards:
            if self.rank == 0 or not shard.replicated:
                block = Block.of(shard)
                tensors[block.weight_key], tensors[block.sum_key] = shard.weight, shard.adagrad_sum
        return tensors

    def _may_copy(self, model: Model, tensors: dict[str, Tensor]) -> bool:
        """Whether all processes may copy as much at once: half of the memory that is free on their machine.

        Of tables in files nothing is copied: all is written while training waits.
        """
        if not model.embeddings.is_in_memory:
            return False
        needed = sum(tensor.nbytes for tensor in tensors.values())
        free = COPIED_SHARE_OF_FREE_MEMORY * available_memory_bytes(torch.device("cpu")) / self.processes
        return all(from_all(needed <= free))

    def _check_files(self, index: dict[str, Any], folder: Path) -> None:
        """Compare all files with their checksums, those who see a folder a part each; all fail when one does."""
        parts = parts_of(index)
        files = [(folder / name, file["sha256"]) for name, file in sorted(index["files"].items())]
        files += [(self.directory / file.name, file.sha256) for part in parts for file in part.files]

        def check() -> None:
            check_upon(parts, self.directory)
            turn, count = self._folders.turn(self.rank)
            for path, checksum in files[turn::count]:
                check_file(path, checksum)

        all_do(check)

    def _read_weights(self, model: Model, index: dict[str, Any], folder: Path, *, with_sums: bool) -> dict[str, Tensor]:
        """Fill the model from a folder whose files were compared; returns what is in the file of the dense part."""
        dense = read_tensors(folder / DENSE, index["files"][DENSE]["sha256"])
        layers = {key.removeprefix(LAYERS): value for key, value in dense.items() if key.startswith(LAYERS)}
        load_weights(model.layers, layers, folder / DENSE)
        if parts := parts_of(index):
            lay_into(list(model.embeddings.begun_shards()), self.directory, parts)
        else:
            fill_shards(model.embeddings.begun_shards(), StoredBlocks(folder, index["files"]), with_sums=with_sums)
        model.embeddings.forget_rows()
        return dense


def _check_finite(tensors: Iterable[tuple[str, Tensor]], step: int) -> None:
    for name, value in tensors:
        parts = value.reshape(-1).split(VALUES_CHECKED_AT_ONCE)  # a mapped file may be larger than memory
        if not all(bool(torch.isfinite(part).all()) for part in parts):
            raise TrainingError(
                f"After step {step} {name} holds a value that is not finite: lower the learning rates; "
                f"the last good checkpoint is kept."
            )


def _dense_weights(model: Model) -> dict[str, Tensor]:
    return {f"{LAYERS}{name}": tensor for name, tensor in model.layers.state_dict().items()}


def _full_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of the dense optimizer; one that is divided over the processes is gathered in the first."""
    if not isinstance(optimizer, DividedOptimizer):
        return optimizer_tensors(optimizer)
    state = optimizer.full_state_dict()
    return {} if state is None else state_tensors(state)


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
