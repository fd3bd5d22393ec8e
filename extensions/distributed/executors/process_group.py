"""Executor that trains in a group of processes of this machine, which divide each batch and the embedding tables."""

import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from shunter.engine.executors.compilation import Trial
from shunter.engine.executors.messages import Done, Message, Order, Task, receive, send
from shunter.engine.executors.remote_training import GRACE_SECONDS, LostError, RemoteTraining
from shunter.engine.executors.role import Executor, Reading
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.memory import free_memory_bytes
from shunter.engine.profiling.profiles import local_profiles
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.engine.table_files import TABLES_IN_FILES
from shunter.errors import HardwareError, ProcessLostError, RequestError, ShunterError, TrainingError
from shunter.extensions.distributed.executors.group_trial import time_group
from shunter.extensions.distributed.links.processes import LAST_WORDS_SECONDS, Group
from shunter.extensions.distributed.private_files import write_private
from shunter.extensions.distributed.training.plan import Division, Machine, Sharding
from shunter.extensions.distributed.training.stored import gather_weights
from shunter.hardware.cost.step_model import link_bytes_per_second
from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.types import HardwareProfile, Placement
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.registry import build_model, can_be_in_file

LARGEST_SHARE = 0.5  # of this process's free memory for the finished tables, because scoring also needs memory
TASK, KEPT_LOG = "task.pickle", "processes.log"
POLL_SECONDS = 0.1
# Processes for a measurement take seconds to start, so that short training runs, which gain little, are not measured.
FEWEST_STEPS, TRIAL_SECONDS = 5_000, 20.0
WORKER = "shunter.extensions.distributed.executors.process_group_worker"


class ProcessGroup(Executor):
    """Executor that trains in several processes of this machine.

    After an interruption the training resumes from the checkpoint, also with another number of processes. Except for
    dropout, which every process draws independently, the losses are those of one process up to the order of additions.

    Args:
        placement: Placement of the training with its number of processes. The `threads` of a job are divided over them;
            `batch_size` is the global batch size. On `cuda` each process has its own device.
        sharding: Constraints on the division of the tables.
    """

    def __init__(self, placement: Placement, sharding: Sharding) -> None:
        self.placement = placement
        self._sharding = sharding
        self.eager_because = None if placement.device == "cpu" else "several processes train together only on GPUs"
        self.trial = Trial(
            lambda job: time_group(self._divided(job), sharding, placement.processes),
            fewest_steps=FEWEST_STEPS,
            seconds=TRIAL_SECONDS,
        )

    def run(self, job: ClickJob, hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None) -> TrainResult:
        """Train a model in several processes; see `shunter.engine.executors.role.Executor.run`.

        Raises:
            RequestError: The memory for the embedding tables is too small.
            MissingExtensionError: The tables are too large for one process, and no extension keeps them in a file.
            TrainingError: A process died and ended the training; the last good checkpoint is kept, with
                `processes.log` beside it.
            ShunterError: See `shunter.engine.loop.trainer.train`.
            KeyboardInterrupt: Ctrl-C; the state has been saved.
        """
        on_gpu, memory = job.execution.device.startswith("cuda"), job.execution.embedding_memory_bytes
        if memory is not None or (not on_gpu and _are_too_large(job)):
            TABLES_IN_FILES.entry("embedding_cache")  # refuses before the training
        with tempfile.TemporaryDirectory(prefix="shunter-") as name:
            kept = checkpointing or Checkpointing(Path(name) / "checkpoint")
            rows = None
            if memory is not None:
                rows = TABLES_IN_FILES.load("cached_rows")(job.spec, job.dataset.features, memory)
            done = self._train(job, hooks, kept, Path(name))
            assert isinstance(done.weights, Path), "the checkpoint stores the weights in parts"
            device = "cuda:0" if on_gpu else job.execution.device
            is_in_file = rows is not None or (not on_gpu and _are_too_large(job))
            # In this case the finished tables exceed the memory of one process, and are only read.
            cache = EmbeddingCache(rows=1, window_batches=1, directory=kept.directory) if is_in_file else None
            model = build_model(job.spec, job.dataset.features, device=device, cache=cache)
            gather_weights(done.weights, model)
        return TrainResult(model=model.eval(), **vars(done.figures))

    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        """Train a model in several processes, and return its metrics and times without weights; raises as `run`."""
        with tempfile.TemporaryDirectory(prefix="shunter-") as name:
            return self._train(job, hooks, Checkpointing(Path(name) / "checkpoint"), Path(name)).figures

    def meter(self) -> AbstractContextManager[Reading]:
        """Return an energy meter of this machine."""
        return measure_energy(self.placement.accelerator)

    def _divided(self, job: ClickJob) -> ClickJob:
        """Return the training with its threads divided by the number of processes."""
        threads = max(1, job.execution.threads // self.placement.processes)
        return replace(job, execution=replace(job.execution, threads=threads))

    def _train(self, job: ClickJob, hooks: Hooks, checkpointing: Checkpointing, folder: Path) -> Done:
        processes = self.placement.processes
        if processes < 1:
            raise RequestError(
                f"A training run needs at least one process, but {processes} are requested: raise the number."
            )
        if job.execution.device.startswith("cuda") and processes > torch.cuda.device_count():
            raise HardwareError(
                f"{processes} processes need one CUDA device each, but torch finds only "
                f"{torch.cuda.device_count()}: use fewer processes."
            )
        job = self._divided(job)
        write_private((Task(job=job, checkpointing=checkpointing), self._sharding), folder / TASK)
        ours, theirs = Pipe()
        with ours:
            with theirs:
                group = Group(WORKER, folder, processes, threads=job.execution.threads, descriptor=theirs.fileno())
            training = RemoteTraining(_GroupChannel(ours, group), hooks)
            try:
                done = training.run(must_save=lambda error: True)
                group.wait(GRACE_SECONDS)
                if group.has_failed:
                    raise group_failure(group)
                return done
            except ShunterError:
                _keep_log(group, checkpointing.directory)
                raise
            finally:
                if training.was_interrupted:
                    group.wait(GRACE_SECONDS)
                group.end()


def group_of_processes(placement: Placement, division: Division = Division()) -> ProcessGroup:  # noqa: B008 - frozen
    """Return the executor of a placement in several processes of this machine.

    By default of `division`, the planner of the group decides how the tables are divided among processes.
    """
    machine = local_machine(placement.accelerator, placement.processes)
    return ProcessGroup(placement, Sharding(machine=machine, given=division.tables, precision=division.precision))


def local_machine(accelerator: str, processes: int) -> Machine:
    """Return memory and speeds of an accelerator of this machine, for the sharding planner; see `machine_of`."""
    profile = next(found for found in local_profiles() if found.accelerator.name == accelerator)
    return machine_of(profile, processes)


def machine_of(profile: HardwareProfile, processes: int) -> Machine:
    """Return memory and speeds for the sharding planner: processes share a CPU's memory, or have one GPU each."""
    shared_by = processes if profile.accelerator.kind == "cpu" else 1
    return Machine(
        memory_bytes=profile.accelerator.memory_bytes // shared_by,
        memory_bytes_per_second=profile.copy_bytes_per_second.value,
        link_bytes_per_second=link_bytes_per_second(profile, processes),
    )


class _GroupChannel:
    """Connection to the first process of the group, as a `shunter.engine.executors.remote_training.Channel`.

    Reading raises `LostError` if any process of the group has failed.
    """

    def __init__(self, connection: Connection, group: Group) -> None:
        self._connection, self._group = connection, group

    def receive(self) -> Sequence[Message]:
        try:
            if self._connection.poll(POLL_SECONDS):
                return [receive(self._connection)]
            is_lost = self._group.has_failed or self._group.has_ended
        except (EOFError, OSError):
            is_lost = True
        if is_lost:
            self._group.wait(LAST_WORDS_SECONDS)  # a process that lost its connection may end before the cause
            raise LostError(group_failure(self._group))
        return []

    def order(self, order: Order) -> None:
        with suppress(OSError):  # the next `receive` finds out how the processes ended
            send(self._connection, order)


def group_failure(group: Group) -> ShunterError:
    """Return the error that describes why the processes of a training run ended without a result."""
    error = group.error()
    if error is not None:
        return error
    count, culprit = len(group.members), group.culprit()
    if culprit is None:
        what = f"The {count} processes ended without a result ({group.members[0].last_text()})"
    elif (group.codes[culprit] or 0) < 0:
        what = f"Process {culprit} of {count} {group.members[culprit].ending()}"
    else:
        what = f"Process {culprit} of {count} failed ({group.members[culprit].last_text()})"
    is_lost = culprit is not None and group.members[culprit].was_ended_from_outside
    return (ProcessLostError if is_lost else TrainingError)(
        f"{what}, so the training stopped: the last good checkpoint is kept, train again to resume from it."
    )


def _are_too_large(job: ClickJob) -> bool:
    """Return True if the divided tables are too large for this process's memory and can be kept in a file."""
    size = EmbeddingTables.count_bytes(job.spec.tables(job.dataset.features))
    free = free_memory_bytes()
    return can_be_in_file(job.spec) and size.weights + size.optimizer > LARGEST_SHARE * free


def _keep_log(group: Group, directory: Path) -> None:
    """Write the output of the processes beside the checkpoint."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / KEPT_LOG).open("w") as kept:
        for rank, member in enumerate(group.members):
            kept.write(f"process {rank}, exit code {member.code}\n")
            if member.code is not None:
                kept.write(member.output())
