"""A slot of this machine: trainings one after another in a process of their own, which may die without harm."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import shunter.errors
from engine.config import Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.execution import execution_of
from engine.executors.ledger import Ledger, LedgerMeter
from engine.executors.training_process import Job
from engine.results import TrainingFigures
from hardware.types import EnergyReading, Placement
from models.spec import ModelSpec
from shunter.errors import ShunterError, TrainingError

POLL_SECONDS = 0.1
MOST_WORDS = 300

ShouldStop = Callable[[], str | None]
Callbacks = Mapping[str, Callable[..., None]]


class ProcessSlot:
    """Trains in a process of its own; a `engine.executors.role.Slot`.

    Starting the process takes seconds, so it is kept from one training to the next, unless something strange failed in
    it. It is in a session of its own, where Ctrl-C in a terminal does not reach it, and it ends with this process,
    whatever ends that.

    Args:
        placement: where it trains, with the threads that are this slot's.
        cores: of the machine whose idle power counts as this slot's, where energy is estimated.
    """

    def __init__(self, placement: Placement, *, cores: int) -> None:
        self.placement = placement
        self._cores = cores
        self._ledger = Ledger()
        self._process: _Process | None = None
        self._lock = threading.Lock()
        self._closed = False

    def meter(self) -> LedgerMeter:
        """Meter of what its trainings draw while it is entered."""
        return LedgerMeter(self._ledger)

    def train(
        self,
        dataset: Dataset,
        spec: ModelSpec,
        hyperparameters: Hyperparameters,
        schedule: Schedule,
        *,
        should_stop: ShouldStop | None = None,
        **options: Any,
    ) -> TrainingFigures:
        """Train; see `engine.executors.role.Slot.train`.

        Raises:
            TrainingError: the loss is not a number any more, or the process died.
            ShunterError: as `engine.loop.trainer.train`.
            KeyboardInterrupt: the slot was closed meanwhile.
        """
        callbacks = {name: call for name, call in options.items() if name.startswith("on_") and call is not None}
        job = Job(
            dataset=dataset,
            spec=spec,
            hyperparameters=hyperparameters,
            execution=execution_of(self.placement),
            schedule=schedule,
            options={name: value for name, value in options.items() if not name.startswith("on_")},
            callbacks=tuple(callbacks),
            cores=self._cores,
        )
        process = self._started()
        self._ledger.begin()
        try:
            return process.follow(job, callbacks, should_stop or (lambda: None), self._ledger.update)
        except BaseException as error:
            self._ledger.close("the process of the training ended before it said what it used")
            if not process.is_idle:
                self._end()
            if self._closed:
                raise KeyboardInterrupt from error
            raise

    def close(self) -> None:
        """End the process; a training under way in another thread ends with KeyboardInterrupt there."""
        with self._lock:
            self._closed = True
        self._end()

    def _started(self) -> "_Process":
        with self._lock:
            if self._closed:
                raise KeyboardInterrupt
            if self._process is not None and self._process.has_ended:  # while nobody wanted anything of it
                self._process.kill()
                self._process = None
            if self._process is None:
                self._process = _Process(self.placement.threads)
            return self._process

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()


class _DiedError(Exception):
    """The process is not there any more."""


class _Process:
    """A running `engine.executors.training_process`.

    Args:
        threads: of the libraries that ask the environment.

    Attributes:
        is_idle: whether it waits for a training: none is under way in it, and nothing strange has failed.
    """

    def __init__(self, threads: int) -> None:
        self.is_idle = True
        root = str(Path(shunter.errors.__file__).parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": str(threads)}
        self._connection, theirs = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `kill`
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "engine.executors.training_process", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    @property
    def has_ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    def follow(
        self,
        job: Job,
        callbacks: Callbacks,
        should_stop: ShouldStop,
        on_energy: Callable[[EnergyReading], None],
    ) -> TrainingFigures:
        """Let it train, call here what it asks to be called, and return the figures."""
        self.is_idle = False
        try:
            return self._follow(job, callbacks, should_stop, on_energy)
        except _DiedError:
            raise self._death() from None

    def kill(self) -> None:
        """End it now, whatever it does: trials have no state to save."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._log.close()

    def _follow(
        self,
        job: Job,
        callbacks: Callbacks,
        should_stop: ShouldStop,
        on_energy: Callable[[EnergyReading], None],
    ) -> TrainingFigures:
        self._send("job", job)
        refused: Exception | None = None
        told_to_stop = False
        while True:
            kind, value = self._received()
            if kind == "energy":
                on_energy(value)
            elif kind == "call":
                refused = _refusal(callbacks, *value)
                self._send("answer", refused is None)
            elif kind == "failed":
                self.is_idle = isinstance(value, ShunterError)
                raise value
            elif kind in ("done", "ended"):
                self.is_idle = True
                if refused is not None:
                    raise refused
                return value
            if not told_to_stop and refused is None and (because := should_stop()) is not None:
                told_to_stop = True
                self._send("stop", because)

    def _received(self) -> tuple[str, Any]:
        """What it says, or nothing for a moment.

        Raises:
            _DiedError: it is gone.
        """
        try:
            return self._connection.recv() if self._connection.poll(POLL_SECONDS) else ("nothing", None)
        except (EOFError, OSError) as error:
            raise _DiedError from error

    def _send(self, kind: str, value: Any) -> None:
        try:
            self._connection.send((kind, value))
        except OSError as error:
            raise _DiedError from error

    def _death(self) -> TrainingError:
        """Says how it ended."""
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return TrainingError(
                "The process of the trial was ended by SIGKILL, as the kernel does where memory runs out: train fewer "
                "at a time, or a smaller model."
            )
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended by itself with code {code}"
        return TrainingError(f"The process of the trial {how} ({self._last_words()}): look into what it trained.")

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "without a message")[:MOST_WORDS]


def _refusal(callbacks: Callbacks, name: str, arguments: tuple[Any, ...]) -> Exception | None:
    """What a callback raises against the training's going on."""
    try:
        callbacks[name](*arguments)
    except Exception as error:
        return error
    return None
