"""The side of a training that runs on a node of the cluster: an actor that trains and tells what happens."""

import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from shunter.engine.executors.checkpoint_files import CheckpointWatch, Files, is_part, write_checkpoint
from shunter.engine.executors.here import trainer_of
from shunter.engine.executors.messages import (
    CheckpointSaved,
    EnergyUsed,
    EpochEnded,
    Message,
    Order,
    Progress,
    Stop,
    Task,
    attended,
)
from shunter.engine.executors.ray.data import find_dataset
from shunter.engine.job import Hooks
from shunter.engine.libraries import load_libraries
from shunter.engine.results import EpochReport, TrainResult
from shunter.engine.stopping import StopReason
from shunter.hardware.meters.meter import EnergyMeter, measure_energy

ANSWER_SECONDS = 0.5  # the longest time until the one who asks hears something


class _Watch(Protocol):
    """Notices new files of a checkpoint."""

    def changed(self) -> Files | None: ...


class NodeTrainer:
    """Lives on a node; Ray calls its methods one after another, while a thread trains."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._arrived = threading.Condition()
        self._stop: Stop | None = None
        self._meter: EnergyMeter | None = None

    def start(self, task: Task, files: Files) -> None:
        """Begin to train.

        Args:
            task: The training, or the rest of one; the arrays of its data are looked for on this node.
            files: Checkpoint to go on from; empty to begin.
        """
        threading.Thread(target=self._run, args=(task, files), name="training", daemon=True).start()

    def order(self, order: Order) -> None:
        """Let the training end after its current step; that it may go on, it knows."""
        if isinstance(order, Stop):
            self._stop = order

    def messages(self, seconds: float = ANSWER_SECONDS) -> list[Message]:
        """What has happened since the last call; waits so long for something to happen."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._messages), timeout=seconds)
            messages, self._messages = self._messages, []
        if self._meter is not None:
            messages.insert(0, EnergyUsed(self._meter.reading))
        return messages

    def _run(self, task: Task, files: Files) -> None:
        self._tell(attended(lambda: self._train(task, files), wants_model=task.wants_model))

    def _train(self, task: Task, files: Files) -> TrainResult:
        job = task.job
        found = find_dataset(job.dataset)
        assert found is not None, "the data set was sent first"
        load_libraries(job.execution.device)
        with tempfile.TemporaryDirectory(prefix="shunter-") as name, _meter(task) as meter:
            self._meter = meter
            checkpointing = task.checkpointing
            if checkpointing is not None:
                checkpointing = replace(checkpointing, directory=Path(name) / "checkpoint")
                if files:
                    write_checkpoint(files, checkpointing.directory)
            tell_checkpoint = self._teller(CheckpointWatch(checkpointing.directory) if checkpointing else None)
            hooks = self._hooks(tell_checkpoint)
            try:
                return trainer_of(job)(
                    replace(job, dataset=replace(job.dataset, directory=found)), hooks, checkpointing
                )
            finally:
                tell_checkpoint()

    def _hooks(self, tell_checkpoint: Callable[[], None]) -> Hooks:
        def on_step(done: int, total: int) -> None:
            tell_checkpoint()
            self._tell(Progress(done, total))

        def on_epoch(report: EpochReport) -> None:
            tell_checkpoint()
            self._tell(EpochEnded(report))

        return Hooks(on_step=on_step, on_epoch=on_epoch, should_stop=self._should_stop)

    def _should_stop(self) -> StopReason | None:
        if self._stop is None:
            return None
        if self._stop.because is None:
            raise KeyboardInterrupt
        return self._stop.because

    def _teller(self, watch: _Watch | None) -> Callable[[], None]:
        def tell() -> None:
            files = watch.changed() if watch else None
            if files:
                self._tell(CheckpointSaved(files))

        return tell

    def _tell(self, message: Message) -> None:
        """Keep it until it is asked for; a later step or checkpoint takes the place of an earlier one."""
        with self._arrived:
            if isinstance(message, CheckpointSaved):
                message = CheckpointSaved({**self._unsent_parts(), **message.files})
            if isinstance(message, Progress | CheckpointSaved):
                self._messages = [kept for kept in self._messages if type(kept) is not type(message)]
            self._messages.append(message)
            self._arrived.notify()

    def _unsent_parts(self) -> Files:
        """Parts of checkpoints that nobody has asked for yet; a later one may consist of them too."""
        files = [kept.files for kept in self._messages if isinstance(kept, CheckpointSaved)]
        return {name: part for found in files for name, part in found.items() if is_part(name)}


def _meter(task: Task) -> EnergyMeter:
    """Meter of the training's part of the node."""
    return measure_energy(task.job.execution.device, cores=task.cores)
