"""The side of a training in a process of its own: one training after another, until its connection ends.

Run as `python -m engine.executors.training_process DESCRIPTOR`, with the descriptor of a connection that it inherits.
The data are not sent: their arrays are mapped from the files, whose pages all processes of a machine share.
"""

import contextlib
import os
import pickle
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engine.config import Execution, Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.libraries import load_libraries
from engine.loop.trainer import train
from engine.results import TrainingFigures
from hardware.meters.meter import EnergyMeter, measure_energy
from models.spec import ModelSpec
from shunter.errors import TrainingError

NEWS_SECONDS = 0.5  # between two messages about energy and steps
# Where memory runs out the kernel ends the process with the highest score (`man 5 proc`): one trial, not the search.
FIRST_VICTIM = "500"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training.

    Attributes:
        dataset: the data, described.
        spec: the architecture.
        hyperparameters: what it is learned with.
        execution: on what it runs.
        schedule: for how long, and the seed.
        options: further arguments of `engine.loop.trainer.train` that are values.
        callbacks: names of those that are functions, all of which are called in the other process.
        cores: of the machine whose idle power counts as this training's, where energy is estimated.
    """

    dataset: Dataset
    spec: ModelSpec
    hyperparameters: Hyperparameters
    execution: Execution
    schedule: Schedule
    options: dict[str, Any]
    callbacks: tuple[str, ...]
    cores: int


class _EndedError(Exception):
    """The other side does not want this training to go on."""


class TrainingServer:
    """Trains what comes along a connection.

    Args:
        connection: gets jobs, answers to callbacks, and texts that end the training as its budget does. It ends with
            the process on the other side, and then nothing here is worth a moment more.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stop_because: str | None = None
        self._told_at = 0.0

    def serve(self) -> None:
        """Train one job after another, for ever."""
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        while True:
            job = self._jobs.get()
            load_libraries(job.execution.device)
            with measure_energy(job.execution.device, scope="process", cores=job.cores) as meter:
                kind, value = self._outcome(job, meter)
            self._connection.send(("energy", meter.reading))
            self._connection.send((kind, value))

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, value = self._connection.recv()
                if kind == "job":
                    self._stop_because = None  # here, in the order of the messages: a stop may follow at once
                    self._jobs.put(value)
                elif kind == "answer":
                    self._answers.put(value)
                else:
                    self._stop_because = value
        os._exit(1)

    def _outcome(self, job: Job, meter: EnergyMeter) -> tuple[str, Any]:
        """What is to be told of a training when it is over."""
        try:
            return "done", self._train(job, meter)
        except _EndedError:
            return "ended", None
        except Exception as error:
            error.add_note(traceback.format_exc())
            return "failed", _portable(error)

    def _train(self, job: Job, meter: EnergyMeter) -> TrainingFigures:
        def should_stop() -> str | None:
            self._tell_now_and_then("energy", lambda: meter.reading.model_copy(update={"power": ()}))
            return self._stop_because

        options = {**job.options, **{name: self._callback(name) for name in job.callbacks}}
        return train(
            job.dataset,
            job.spec,
            job.hyperparameters,
            job.execution,
            job.schedule,
            should_stop=should_stop,
            **options,
        ).figures

    def _callback(self, name: str) -> Callable[..., None]:
        """One that is called in the other process, which is waited for: it may end the training."""

        def call(*arguments: Any) -> None:
            self._connection.send(("call", (name, arguments)))
            if not self._answers.get():
                raise _EndedError

        return call

    def _tell_now_and_then(self, kind: str, value: Callable[[], Any]) -> None:
        if time.monotonic() - self._told_at >= NEWS_SECONDS:
            self._connection.send((kind, value()))
            self._told_at = time.monotonic()


def _portable(error: Exception) -> Exception:
    """The error itself where it survives the way to the other process, else one that says what it was."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return TrainingError(f"{type(error).__name__}: {error}")
    return error


def main(descriptor: int) -> None:
    """Serve the connection."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_VICTIM)
    TrainingServer(Connection(descriptor)).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
