"""Checkpoint directory of an unfinished training run, valid at any time the process is killed.

Small state is copied at once. Of the tables, only rows that steps change before they are written are copied
(`shunter.extensions.incremental_checkpoints.snapshot`). A writer thread quantises and writes the data file by file,
under names that no kept generation uses. The list of the files (`shunter.engine.checkpoint.generations`) is replaced
last and atomically, so that it always names complete files. Files that no kept generation names are removed afterwards.

Where tables are in a file, or the other state is too large for a copy, the same files are written while training waits.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from shunter.engine.checkpoint.background import WRITER, BackgroundWriter, Throttle
from shunter.engine.checkpoint.changed_rows import ChangedRows, CheckpointRows, GivenUpError
from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.checkpoint.checkpoint_settings import (
    BY_DEFAULT,
    FULL_PRECISION,
    ROW_TRACKERS,
    CheckpointFigures,
    CheckpointSettings,
)
from shunter.engine.checkpoint.copies import CHECKPOINT_COPIES, CheckpointCopy, Layout
from shunter.engine.checkpoint.generations import (
    NEWEST,
    Generation,
    GenerationsLayout,
    Part,
    StoredFile,
    generation_path,
    generation_paths,
    kept_bytes,
    remove_older,
)
from shunter.engine.checkpoint.storage import load_weights, read_tensors, write_tensors
from shunter.engine.checkpoint.training_tensors import (
    bags_of,
    bytes_of,
    check_finite,
    collect,
    distribute,
    embedding_tables,
    tables_of,
    weights_among,
)
from shunter.engine.memory import available_memory_bytes
from shunter.errors import CheckpointError

log = logging.getLogger(__name__)

Trained = TypeVar("Trained", bound=nn.Module)
# Limit of copies: this many bytes, or this share of the tables if that is more, and at most this share of the free
# memory. A training run thus takes hardly more memory than without checkpoints, as predicted. Rows that steps change
# before a slow disk has them may fill that share of the free memory, so that steps do not wait for the disk.
COPIED_BYTES = 16 << 20
COPIED_SHARE_OF_TABLES = 0.25
COPIED_SHARE_OF_FREE_MEMORY = 0.5
# From this size on writing takes seconds, in which training gets priority; shorter writes are better done at once.
LONG_FROM_BYTES = 64 << 20


class CheckpointDirectory(Generic[Trained]):
    """Checkpoints of one training run.

    Args:
        directory: Folder of this run's checkpoints only; created if missing.
        identity: Properties that a checkpoint must share with the training run that resumes from it.
        checkpoint_settings: Checkpoint policy.

    Attributes:
        figures: Cost of the checkpoints so far.

    Raises:
        MissingExtensionError: The policy has a remote address, and no installed extension copies checkpoints.
    """

    def __init__(
        self, directory: Path, identity: dict[str, Any], checkpoint_settings: CheckpointSettings = BY_DEFAULT
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.path = directory / NEWEST
        self.checkpoint_settings = checkpoint_settings
        self.figures = CheckpointFigures()
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._writer = BackgroundWriter()
        self._counted_until = time.process_time()
        self._throttle = Throttle(checkpoint_settings.bytes_per_second)
        self._tables: ChangedRows | None = None
        self._number = 0
        self._parts: tuple[Part, ...] = ()
        self._best: StoredFile | None = None
        self._best_parts: tuple[Part, ...] = ()
        self._best_copy: tuple[str, dict[str, Tensor]] | None = None
        self._newest: StoredFile | None = None
        self._is_unchanged = self._next_is_best = False
        # The rows of an abandoned checkpoint are written with the next one; two consecutive ones are never abandoned.
        self._is_given_up = self._was_given_up = False

        self._copy = self._copy_of(GenerationsLayout())

    def _copy_of(self, layout: Layout) -> CheckpointCopy | None:
        """Return the remote copy, or None if the policy has no remote address."""
        policy = self.checkpoint_settings
        if policy.copied_to is None:
            return None
        throttle = Throttle(policy.bytes_per_second)
        return CHECKPOINT_COPIES.load("remote")(policy.copied_to, self._identity, layout, policy.generations, throttle)

    def fetch(self) -> None:
        """Download the newest checkpoint from the remote copy if this folder has no checkpoint.

        Raises:
            CheckpointError: The address cannot be read.
        """
        if self._copy is not None and not self.exists():
            self._copy.fetch(self.directory)

    def exists(self) -> bool:
        """Return True if there is a checkpoint."""
        return self.path.exists() or bool(generation_paths(self.directory))

    def follow(self, model: Trained) -> None:
        """Track the rows that a training run of this model changes; call before its first step and before `read`.

        Rows are tracked if the policy is incremental for the size of the model's tables.
        """
        tables = tables_of(model)
        if tables is not None and self.checkpoint_settings.is_incremental(bytes_of(tables)):
            self._tables = self._new_tracker(model)
            self._bags_of = bags_of(model)

    def record_rows(self, values: Tensor, offsets: Tensor) -> None:
        """Record the rows of a batch as changed; call right before each training step.

        `values` are the ids of the batch, `offsets` the starts of its bags, as in `Batch`. Rows that an unfinished
        checkpoint still has to write are copied first.
        """
        if self._tables is not None:
            self._is_unchanged = False
            rows = self._tables.note(*self._bags_of(values, offsets))
            with self._stall():
                self._tables.before_step(rows)

    def keep_best(self, model: Trained, step: int) -> None:
        """Mark the current weights as the best so far, to be saved with the next `write`.

        With incremental tables the best weights are a generation whose files are kept. This is the newest generation if
        no step came after it, otherwise the next generation. The next generation stores its rows in at least 8 bits
        each number, and stores all rows if earlier parts have fewer bits.
        """
        with self._stall():
            if self._tables is None:
                name, weights = f"best-{step}-{self._number}.safetensors", dict(model.state_dict())
                self._best_copy = None  # freed first: old and new copy together would raise the memory peak
                self._best_parts = ()
                if _bytes_of(weights) <= _bytes_for_copies(model):
                    self._best_copy = name, _copies(weights)  # the next `write` saves it
                else:
                    self._writer.wait()
                    self._best = self._write_file(name, weights)
            elif self._is_unchanged:
                self._writer.wait()
                self._best, self._best_parts = self._newest, self._parts
            else:
                self._next_is_best = True

    def restore_best(self, model: Trained) -> None:
        """Load the best weights into the model."""
        self._writer.wait()
        if self._best_copy is not None:
            name, weights = self._best_copy
            load_weights(model, weights, self.directory / name)
            return
        assert self._best is not None, "an epoch has been evaluated"
        path = self.directory / self._best.name
        tensors = read_tensors(path, self._best.sha256)
        if self._best_parts:
            (self._tables or self._new_tracker(model)).put_best(self.directory, self._best_parts)
            tensors = weights_among(tensors)
        load_weights(model, tensors, path, without_tables=bool(self._best_parts))

    def write(
        self, model: Trained, optimizer: torch.optim.Optimizer, state: dict[str, Any], *, may_skip: bool = False
    ) -> None:
        """Start to write a checkpoint of the current training state in the background.

        Args:
            model: Weights and the state of the fused optimizer of the tables.
            optimizer: Optimizer of the dense part.
            state: All other state as plain values, including the number of the `step`.
            may_skip: Whether to skip this checkpoint while the previous one is still being written, instead of waiting.

        Raises:
            TrainingError: A weight of the previous checkpoint was not finite; the last good checkpoint stays.
            CheckpointError: The previous checkpoint could not be written.
        """
        with self._stall():
            self._writer.check()
            if self._writer.is_busy and may_skip:
                self.figures.skipped += 1
                return
            self._writer.wait()
            self._was_given_up = self._is_given_up
            if self._is_given_up and self._tables is not None:  # its rows are still to be written
                self._tables.undo()
                self.figures.skipped += 1
                self._is_given_up = False
            self._begin(model, optimizer, state, may_skip=may_skip)

    def finish(self, *, is_over: bool = False) -> None:
        """Wait until the last checkpoint is on disk and, unless the training run is over, copied to the remote address.

        If the run is over (`is_over`), the remote copy is stopped.

        Raises:
            TrainingError: A weight of the checkpoint was not finite.
            CheckpointError: The checkpoint could not be written.
        """
        with self._stall():
            self._writer.wait()
            if self._copy is not None:
                if is_over:
                    self._copy.stop()
                else:
                    self._copy.finish(self.directory, self.figures)

    def read(self, model: Trained, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Restore model, optimizer and random state, and return the `state` that was written with them.

        The newest complete generation is used; a warning reports a damaged newer generation.

        Raises:
            CheckpointError: No generation is complete, or the checkpoint belongs to another training run.
        """
        generation = self._newest_whole()
        path = self.directory / generation.tensors.name
        tensors = read_tensors(path, generation.tensors.sha256)
        if generation.parts:
            tables = self._tables or self._new_tracker(model)
            tables.put_back(self.directory, generation.parts, generation.history)
            if self._tables is not None:
                self._parts = generation.parts
        distribute(tensors, model, optimizer, path, rows_apart=bool(generation.parts))
        self._best, self._best_parts, self._number = generation.best, generation.best_parts, generation.number
        for path in generation_paths(self.directory):  # newer, damaged generations are removed
            if path > generation_path(self.directory, generation.number):
                path.unlink(missing_ok=True)
        self.figures = CheckpointFigures.of(generation.figures or {})
        self.figures.restores += 1
        return generation.state

    def check_identity(self, found: dict[str, Any], path: Path) -> None:
        """Compare the identity in a checkpoint with the identity of the training run that resumes from it.

        Raises:
            CheckpointError: The identities differ; the message names the differing properties.
        """
        different = sorted(key for key in self._identity if found.get(key) != self._identity[key])
        if different:
            raise CheckpointError(
                f"The checkpoint {path} belongs to another training run (it differs in "
                f"{', '.join(different)}): resume with the former settings, or use another folder."
            )

    def _begin(
        self, model: Trained, optimizer: torch.optim.Optimizer, state: dict[str, Any], *, may_skip: bool
    ) -> None:
        """Copy the current state for the writer; if memory does not suffice for copies, write it in this thread."""
        tables = self._tables
        tensors = collect(model, optimizer, rows_apart=tables is not None)
        free_bytes = _bytes_for_copies(model) - _bytes_of(tensors)
        if free_bytes >= 0:
            tensors = _copies(tensors)
        is_best, self._next_is_best = self._next_is_best, False
        rows = None
        if tables is not None:
            rows = tables.next_rows(
                _bytes_for_rows(_bytes_of(tensors)),
                is_best=is_best,
                may_give_up=may_skip and not self._was_given_up and self._newest is not None,
            )
        values = json.loads(json.dumps(state))
        best, self._best_copy = self._best_copy, None

        def job() -> None:
            started = time.thread_time()
            try:
                if best is not None:
                    self._best = self._write_file(*best)
                self._write_generation(values, tensors, rows, is_best=is_best)
            except GivenUpError:
                self._is_given_up = True
                self._remove_older()
            finally:
                if threading.current_thread().name == WRITER:  # otherwise the time is counted as a stall
                    self.figures.processor_seconds += time.thread_time() - started
                if tables is not None:
                    tables.close()

        self._is_unchanged = True
        if free_bytes >= 0:
            self._writer.start(job, gives_way=tables is not None and tables.bytes >= LONG_FROM_BYTES)
        else:
            job()

    def _write_generation(
        self, state: dict[str, Any], tensors: dict[str, Tensor], rows: CheckpointRows | None, *, is_best: bool
    ) -> None:
        """Write all files of a generation, then its list of files, then remove older generations."""
        started = time.perf_counter()
        number, parts = self._number + 1, self._parts
        for name, tensor in tensors.items():
            check_finite(name, tensor, state["step"])
        if rows is not None:
            parts = rows.write(number, state["step"], parts, self._write_file)
        figures = self.figures
        figures.written += 1
        figures.full += rows is None or rows.are_all
        figures.bits = self.checkpoint_settings.bits_of(self._tables.bytes) if self._tables else FULL_PRECISION
        stored = self._write_file(f"state-{number:06d}.safetensors", tensors)
        if is_best:
            self._best, self._best_parts = stored, parts
        figures.write_seconds += time.perf_counter() - started
        generation = Generation(
            number=number,
            identity=self._identity,
            state=state,
            tensors=stored,
            parts=parts,
            history=tuple(map(tuple, self._tables.history)) if self._tables else (),
            best=self._best,
            best_parts=self._best_parts,
            figures=asdict(figures),
        )
        text = json.dumps(generation.to_dict(), indent=1)
        write_json(generation_path(self.directory, number), text)
        write_json(self.path, text)
        self._number, self._parts, self._newest = number, parts, stored
        self._remove_older()
        figures.bytes_kept = max(figures.bytes_kept, kept_bytes(self.directory))
        if self._copy is not None:
            self._copy.follow(self.directory, figures)

    def _remove_older(self) -> None:
        spared = self._copy.names_in_work if self._copy is not None else frozenset[str]()
        remove_older(self.directory, self.checkpoint_settings.generations, spared)

    def _write_file(self, name: str, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> StoredFile:
        path = self.directory / name
        stored = StoredFile(name=name, sha256=write_tensors(path, tensors, metadata))
        size = path.stat().st_size
        self.figures.bytes_written += size
        self._throttle.wrote(size)
        return stored

    def _newest_whole(self) -> Generation:
        """Return the newest generation whose files all match their checksums; raise CheckpointError without one."""
        problems: list[CheckpointError] = []
        for path in (self.path, *generation_paths(self.directory)):
            try:
                generation = Generation.read(path)
                generation.check(self.directory)
            except CheckpointError as error:
                problems.append(error)
                continue
            self.check_identity(generation.identity, path)
            if problems:
                log.warning(
                    "%s The training resumes from the previous checkpoint, after step %d.",
                    problems[0],
                    generation.state["step"],
                )
            return generation
        raise problems[0]

    def _new_tracker(self, model: Trained) -> ChangedRows:
        """Return a tracker of the rows of a model's tables, also used just to load rows."""
        tables = tables_of(model)
        if tables is None:
            raise CheckpointError(
                f"The checkpoint in {self.path} has embedding tables, but the model has none: start a new training run."
            )
        return ROW_TRACKERS.load("changed_rows")(tables, next(model.parameters()).device, self.checkpoint_settings)

    @contextmanager
    def _stall(self) -> Iterator[None]:
        started, processor_started = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            figures, until = self.figures, time.process_time()
            figures.stall_seconds += time.perf_counter() - started
            figures.processor_seconds += time.thread_time() - processor_started
            figures.process_seconds += until - self._counted_until
            self._counted_until = until


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _bytes_of(tensors: dict[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def _bytes_for_copies(model: nn.Module) -> float:
    """Return the memory limit of state copies in bytes; 0 (training waits for the write) if tables are in a file."""
    tables = [tables for _, tables in embedding_tables(model)]
    if not all(one.is_in_memory for one in tables):
        return 0
    most = max(COPIED_BYTES, COPIED_SHARE_OF_TABLES * sum(map(bytes_of, tables)))
    return min(most, _free_bytes())


def _bytes_for_rows(taken_bytes: int) -> float:
    """Return the memory limit of copies of embedding rows in bytes; other copies take `taken_bytes`."""
    return max(_free_bytes() - taken_bytes, 0)


def _free_bytes() -> float:
    return COPIED_SHARE_OF_FREE_MEMORY * available_memory_bytes(torch.device("cpu"))
