"""Checkpoints of a training run in several processes, written in the background and valid if any process is killed.

Every process copies its own shards, or only their changed rows; training waits for this copy alone. A background thread
of each process then writes the copy. The files are collected in a temporary folder, which one rename turns into the
checkpoint after every file is on the disk (`shunter.extensions.distributed.training.stored`). A folder that was not
renamed is ignored, and removed by the next checkpoint. The threads communicate in a process group of their own, so that
their messages do not mix with those of the training. If copies would take too much memory, the shards are written while
training waits.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch import distributed as dist

from shunter.engine.checkpoint.background import WRITER
from shunter.engine.checkpoint.checked_files import SHARDED, check_file
from shunter.engine.checkpoint.checkpoint_settings import (
    BY_DEFAULT,
    FULL_PRECISION,
    CheckpointFigures,
    CheckpointSettings,
)
from shunter.engine.checkpoint.directory import (
    COPIED_SHARE_OF_FREE_MEMORY,
    LONG_FROM_BYTES,
    CheckpointDirectory,
)
from shunter.engine.checkpoint.generations import check_base_chain, history_of
from shunter.engine.checkpoint.storage import holds_sharded_checkpoint, load_weights, read_tensors
from shunter.engine.checkpoint.training_tensors import (
    bytes_of,
    check_finite,
    optimizer_tensors,
    random_tensors,
    restore_optimizer,
    restore_random,
    state_tensors,
)
from shunter.engine.memory import available_memory_bytes
from shunter.errors import CheckpointError, ShunterError
from shunter.extensions.distributed.tables.sharded import ShardedEmbeddings
from shunter.extensions.distributed.training.folders import Folders, FolderWriter, files_in
from shunter.extensions.distributed.training.hosts import HostModel, all_do, from_all
from shunter.extensions.distributed.training.stored import (
    BEST,
    DENSE,
    LAYERS,
    Block,
    StoredLayout,
    bytes_in,
    checkpoints,
    file_of,
    fill_shards,
    latest_checkpoint,
    number_of,
    parts_of,
    read_index,
    remove_newer,
    remove_older,
)
from shunter.extensions.distributed.training.tiered import TieredShards
from shunter.models.registry import Model

if TYPE_CHECKING:
    from shunter.extensions.distributed.training.rows import DividedRows, OwnRows

log = logging.getLogger(__name__)

Job = Callable[[], None]


@runtime_checkable
class DividedOptimizer(Protocol):
    """Optimizer whose state the processes of one training run divide."""

    def full_state_dict(self) -> dict[str, Any] | None:
        """Return the whole state in the first process, None in the others; all processes call it."""
        ...


class ShardedCheckpoint(CheckpointDirectory[Model]):
    """Checkpoint of one training run in several processes; all processes call each method together.

    Args:
        directory: Folder of this checkpoint alone, visible to every process; created if missing.
        identity: Properties that a checkpoint must share with the training that resumes from it.
        checkpoint_settings: Policy of the checkpoints; the best weights always have full precision.
        folders: Processes that share a file system; None if all see the same folder.
    """

    def __init__(
        self,
        directory: Path,
        identity: dict[str, Any],
        checkpoint_settings: CheckpointSettings = BY_DEFAULT,
        folders: Folders | None = None,
    ) -> None:
        super().__init__(directory, identity, checkpoint_settings)
        self.rank, self.processes = dist.get_rank(), dist.get_world_size()
        self._group: Any = dist.new_group(backend="gloo")  # of the threads that write
        self._folders = folders or Folders((0,) * self.processes)
        self._writes = FolderWriter(directory, self._throttle, self._group, self._folders)
        self._best_name: str | None = None
        self._write_best: Job | None = None
        self._rows: DividedRows | None = None
        self._copy = self._copy_of(StoredLayout()) if self.rank == 0 else None

    def fetch(self) -> None:
        """Download the newest checkpoint from the remote copy if the folder has none.

        The first process downloads. If the processes have separate folders, the others get the files of the first.

        Raises:
            CheckpointError: The address cannot be read.
        """
        if self.checkpoint_settings.copied_to is not None:
            all_do(super().fetch)
        self._folders.spread(self.directory, files_in(self.directory) if self.rank == 0 else ())

    @property
    def best(self) -> Path:
        """Return the folder of the best weights; weights that are still in memory are written first."""
        assert self._best_name is not None, "an epoch has been evaluated"
        with self._stall():
            self._writer.wait()
            if self._write_best is not None:
                job, self._write_best = self._write_best, None
                job()
        return self.directory / self._best_name

    def exists(self) -> bool:
        """Return True if there is a checkpoint.

        Raises:
            CheckpointError: The checkpoint was written by a single process.
        """
        if super().exists():
            raise CheckpointError(
                f"The checkpoint in {self.directory} was written by a single process: resume it with one process or "
                f"start anew."
            )
        return holds_sharded_checkpoint(self.directory)

    def follow(self, model: Model) -> None:
        """Start to track changed rows for incremental checkpoints, if the tables of all processes are large enough."""
        tables = model.embeddings
        if not isinstance(tables, ShardedEmbeddings | TieredShards):
            return
        table_bytes = sum(from_all(bytes_of(tables)))
        if self.checkpoint_settings.is_incremental(table_bytes):
            from shunter.extensions.distributed.training.rows import DividedRows

            self._rows = DividedRows(tables, next(model.parameters()).device, self.checkpoint_settings, table_bytes)
            self._bags_of = model.bags_of

    def record_rows(self, values: Tensor, offsets: Tensor) -> None:
        """Record the rows of this process's part of a batch as changed; call it right before the training step."""
        if self._rows is not None:
            self._rows.note(*self._bags_of(values, offsets))

    def keep_best(self, model: Model, step: int) -> None:
        """Store the current weights as the best; the next `write` makes them part of the checkpoint."""
        with self._stall():
            if isinstance(model, HostModel):
                model.gather_layers()
            own = self._own_blocks(model, is_whole=True)
            blocks = {key: tensor for key, tensor in own.items() if key.endswith("weight")}
            dense = _dense_weights(model)
            name = self._best_name = f"{BEST}{step}"
            self._write_best = None  # free the old copy first, which lowers the peak memory
            may_copy = self._may_copy(model, {**blocks, **dense})
            if may_copy:
                blocks, dense = _copies(blocks), _copies(dense)

            def job() -> None:
                _, size = self._writes.write(name, blocks, dense, {})
                self.figures.bytes_written += size

            if may_copy:
                self._write_best = job
            else:
                self._writer.wait()
                job()

    def restore_best(self, model: Model) -> None:
        """Load the best weights into the model; the Adagrad sums are not changed."""
        folder = self.best
        self._read_weights(model, read_index(folder), folder, with_sums=False)

    def write(
        self, model: Model, optimizer: torch.optim.Optimizer, state: dict[str, Any], *, may_skip: bool = False
    ) -> None:
        """Start to write a checkpoint of the current training state.

        Args:
            model: Model with its shards and dense weights.
            optimizer: Optimizer of the dense part.
            state: All other state as plain values, including the number of the `step`.
            may_skip: Whether to skip this checkpoint if the previous one is still being written, instead of waiting.

        Raises:
            TrainingError: The previous checkpoint had a weight that is not finite; the last good checkpoint remains.
            CheckpointError: A process could not write the previous checkpoint.
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
        """Copy the state for the background writer; without memory for the copy, write it in this thread."""
        if isinstance(model, HostModel):
            model.gather_layers(optimizer)
        if isinstance(optimizer, DividedOptimizer):  # its state is gathered in the first process
            full_state = optimizer.full_state_dict()
            of_optimizer = {} if full_state is None else state_tensors(full_state)
        else:
            of_optimizer = optimizer_tensors(optimizer)
        own, dense = self._own_blocks(model), {**_dense_weights(model), **of_optimizer}
        may_copy = self._may_copy(model, {**own, **dense})
        if not may_copy:
            all_do(lambda: _check_all_finite([*own.items(), *dense.items()], state["step"]), self._group)
        blocks: dict[str, Tensor] = own
        rows: OwnRows | None = None
        if self._rows is not None:
            blocks, rows = {}, self._rows.next(self.rank)
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
        rows: "OwnRows | None",
    ) -> None:
        """Write a checkpoint, then remove old generations."""
        started, processor_started = time.perf_counter(), time.thread_time()
        pieces = rows.pieces if rows is not None and isinstance(rows.pieces, list) else []
        copied = [(f"table {one.table}", one.weight) for one in pieces if isinstance(one.weight, Tensor)]
        named = [*own.items(), *dense.items(), *copied]
        all_do(lambda: _check_all_finite(named, values["state"]["step"]), self._group)
        newest = latest_checkpoint(self.directory)
        name = f"{SHARDED}{number_of(newest) + 1 if newest else 0:06d}"
        figures = self.figures
        figures.written += 1
        figures.full += rows is None or rows.content == "full"
        figures.bits = FULL_PRECISION if rows is None else rows.bits
        upon, history = (self._rows.parts, self._rows.history) if self._rows is not None else ((), [])
        parts, size = self._writes.write(
            name, own, dense, values | {"figures": asdict(figures), "history": history}, rows=rows, before=upon
        )
        figures.bytes_written += size
        if self._rows is not None:
            self._rows.parts = parts
        figures.write_seconds += time.perf_counter() - started
        if threading.current_thread().name == WRITER:  # else it is counted as a stall
            figures.processor_seconds += time.thread_time() - processor_started
        if self._folders.is_kept_by(self.rank):
            spared = self._copy.names_in_work if self._copy is not None else frozenset[str]()
            remove_older(self.directory, self.checkpoint_settings.generations, spared)
            figures.bytes_kept = max(figures.bytes_kept, bytes_in(self.directory))
            if self._copy is not None:
                self._copy.follow(self.directory, figures)

    def read(self, model: Model, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Restore model, optimizer and random state, and return the `state` that was written with them.

        The newest undamaged checkpoint is used; a warning names the fault of a newer one. If another number of
        processes wrote it, the random state is seeded with the seed plus the step instead.

        Raises:
            CheckpointError: No checkpoint is undamaged, or the checkpoint belongs to another training run.
        """
        folder, index = self._newest_of_all()
        dist.barrier()  # every process has read the newer checkpoints before they are removed
        if self._folders.is_kept_by(self.rank):
            remove_newer(self.directory, folder)
        self._best_name, state = index["best"], index["state"]
        dense = self._read_weights(model, index, folder, with_sums=True)
        if self._rows is not None and (parts := parts_of(index)):
            self._rows.resume(self.directory, parts, history_of(index["history"]))
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
        """Return the folder and index of the newest checkpoint whose checksums match; the same in all processes."""
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
                    "%s The training resumes from the previous checkpoint, after step %d.",
                    problems[0],
                    index["state"]["step"],
                )
            return folder, index
        raise problems[0]

    def _checked_index(self, folder: Path) -> dict[str, Any]:
        index: dict[str, Any] = {}
        all_do(lambda: index.update(read_index(folder)))
        if missing := {"identity", "state", "best", "processes"} - index.keys():
            raise CheckpointError(
                f"The checkpoint {folder} was written by another version of Shunter (it lacks "
                f"{min(missing)!r}): delete it and train again."
            )
        self._check_files(index, folder)
        if index["best"] is not None:  # find a damaged file now instead of at the end of the training
            best: dict[str, Any] = {}
            all_do(lambda: best.update(read_index(self.directory / index["best"])))
            self._check_files(best, self.directory / index["best"])
        return index

    def _own_blocks(self, model: Model, *, is_whole: bool = False) -> dict[str, Tensor]:
        """Return the tensors that this process writes; the first process writes replicated tables.

        Incremental checkpoints include rows that were never looked up only if `is_whole`.
        """
        tensors: dict[str, Tensor] = {}
        shards = model.embeddings.shards() if self._rows is None or is_whole else model.embeddings.initialised_shards()
        for shard in shards:
            if self.rank == 0 or not shard.replicated:
                block = Block.of(shard)
                tensors[block.weight_key], tensors[block.sum_key] = shard.weight, shard.adagrad_sum
        return tensors

    def _may_copy(self, model: Model, tensors: dict[str, Tensor]) -> bool:
        """Return True if all processes can copy their tensors at once into a share of the machine's free memory.

        Tables in files are not copied; they are written while training waits.
        """
        if not model.embeddings.is_in_memory:
            return False
        needed = sum(tensor.nbytes for tensor in tensors.values())
        free = COPIED_SHARE_OF_FREE_MEMORY * available_memory_bytes(torch.device("cpu")) / self.processes
        return all(from_all(needed <= free))

    def _check_files(self, index: dict[str, Any], folder: Path) -> None:
        """Verify all checksums, divided among the processes that share a folder; if one fails, all raise."""
        parts = parts_of(index)
        files = [(folder / name, file["sha256"]) for name, file in sorted(index["files"].items())]
        files += [(self.directory / file.name, file.sha256) for part in parts for file in part.files]

        def check() -> None:
            check_base_chain(parts, self.directory)
            turn, count = self._folders.turn(self.rank)
            for path, checksum in files[turn::count]:
                check_file(path, checksum)

        all_do(check)

    def _read_weights(self, model: Model, index: dict[str, Any], folder: Path, *, with_sums: bool) -> dict[str, Tensor]:
        """Load the model from a verified folder; return the tensors of the file of the dense part."""
        dense = read_tensors(folder / DENSE, index["files"][DENSE]["sha256"])
        layers = {key.removeprefix(LAYERS): value for key, value in dense.items() if key.startswith(LAYERS)}
        load_weights(model.layers, layers, folder / DENSE)
        if parts := parts_of(index):
            from shunter.extensions.distributed.training.rows import load_parts

            load_parts(list(model.embeddings.initialised_shards()), self.directory, parts)
        else:
            fill_shards(model.embeddings.initialised_shards(), folder, index["files"], with_sums=with_sums)
        model.embeddings.forget_rows()
        return dense


def _check_all_finite(tensors: Iterable[tuple[str, Tensor]], step: int) -> None:
    for name, value in tensors:
        check_finite(name, value, step)


def _dense_weights(model: Model) -> dict[str, Tensor]:
    return {f"{LAYERS}{name}": tensor for name, tensor in model.layers.state_dict().items()}


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
