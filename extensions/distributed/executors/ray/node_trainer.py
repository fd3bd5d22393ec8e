"""Node's side of a remote training: an actor that trains and collects messages."""

import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from shunter.engine.executors.checkpoint_files import CheckpointWatch, Files, is_part, write_checkpoint
from shunter.engine.executors.in_process import trainer_of
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
from shunter.engine.job import Hooks
from shunter.engine.libraries import load_libraries
from shunter.engine.results import EpochReport, TrainResult
from shunter.engine.stopping import StopReason
from shunter.extensions.distributed.executors.ray.data import find_dataset
from shunter.hardware.meters.meter import EnergyMeter, measure_energy

ANSWER_SECONDS = 0.5  # longest wait of a call for messages


class _FileWatch(Protocol):
    """Watcher of new checkpoint files."""

    def changed(self) -> Files | None: ...


class NodeTrainer:
    """Actor on a node; Ray calls its methods one after another, while a thread trains."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._arrived = threading.Condition()
        self._stop: Stop | None = None
        self._meter: EnergyMeter | None = None

    def start(self, task: Task, files: Files) -> None:
        """Start the training in a thread.

        Args:
            task: The training, or the rest of one; the arrays of its data are searched on this node.
            files: Checkpoint to resume from; empty to begin.
        """
        threading.Thread(target=self._run, args=(task, files), name="training", daemon=True).start()

    def order(self, order: Order) -> None:
        """Store an order to stop after the current step; other orders are ignored."""
        if isinstance(order, Stop):
            self._stop = order

    def messages(self, seconds: float = ANSWER_SECONDS) -> list[Message]:
        """Return the messages since the last call; wait at most `seconds` for one."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._messages), timeout=seconds)
            messages, self._messages = self._messages, []
        if self._meter is not None:
            messages.insert(0, EnergyUsed(self._meter.reading))
        return messages

    def _run(self, task: Task, files: Files) -> None:
        self._send(attended(lambda: self._train(task, files), wants_model=task.wants_model))

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
            send_checkpoint = self._sender(CheckpointWatch(checkpointing.directory) if checkpointing else None)
            hooks = self._hooks(send_checkpoint)
            try:
                return trainer_of(job)(
                    replace(job, dataset=replace(job.dataset, directory=found)), hooks, checkpointing
                )
            finally:
                send_checkpoint()

    def _hooks(self, send_checkpoint: Callable[[], None]) -> Hooks:
        def on_step(done: int, total: int) -> None:
            send_checkpoint()
            self._send(Progress(done, total))

        def on_epoch(report: EpochReport) -> None:
            send_checkpoint()
            self._send(EpochEnded(report))

        return Hooks(on_step=on_step, on_epoch=on_epoch, should_stop=self._should_stop)

    def _should_stop(self) -> StopReason | None:
        if self._stop is None:
            return None
        if self._stop.because is None:
            raise KeyboardInterrupt
        return self._stop.because

    def _sender(self, watch: _FileWatch | None) -> Callable[[], None]:
        def send_epochs() -> None:
            files = watch.changed() if watch else None
            if files:
                self._send(CheckpointSaved(files))

        return send_epochs

    def _send(self, message: Message) -> None:
        """Queue a message; a later step or checkpoint replaces an earlier one."""
        with self._arrived:
            if isinstance(message, CheckpointSaved):
                message = CheckpointSaved({**self._unsent_parts(), **message.files})
            if isinstance(message, Progress | CheckpointSaved):
                self._messages = [kept for kept in self._messages if type(kept) is not type(message)]
            self._messages.append(message)
            self._arrived.notify()

    def _unsent_parts(self) -> Files:
        """Return the parts of queued checkpoints, which a later checkpoint may also consist of."""
        files = [kept.files for kept in self._messages if isinstance(kept, CheckpointSaved)]
        return {name: part for found in files for name, part in found.items() if is_part(name)}


def _meter(task: Task) -> EnergyMeter:
    """Return a meter of the training's share of the node."""
    return measure_energy(task.job.execution.device, cores=task.cores)
