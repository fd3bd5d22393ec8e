"""Executor that trains in a separate process of this machine, whose crash does not affect this process."""

import threading
from collections.abc import Callable, Sequence
from multiprocessing import Pipe

from shunter.engine.executors.energy import Ledger, LedgerMeter
from shunter.engine.executors.messages import Done, Message, Order, Task, receive, send, with_model
from shunter.engine.executors.remote_training import LostError, RemoteTraining
from shunter.engine.executors.role import Executor
from shunter.engine.job import Checkpointing, ClickJob, Hooks
from shunter.engine.results import TrainingFigures, TrainResult
from shunter.errors import ProcessLostError, ShunterError, TrainingError
from shunter.hardware.devices.python_process import PythonProcess
from shunter.hardware.types import EnergyReading, Placement

POLL_SECONDS = 0.1
WORKER = "shunter.engine.executors.separate_process_worker"


class SubprocessExecutor(Executor):
    """Executor that trains in a separate process.

    Starting the worker process takes seconds, so that it is reused for the next training run, unless an unexpected
    error occurred in it. The worker process ends with its parent process, even if the parent is killed.

    Args:
        placement: Placement of the training, with this process's share of the threads.
        cores: Cores of the machine whose idle power counts for this training run, if energy is estimated.
    """

    eager_because = "it shares the machine with others"

    def __init__(self, placement: Placement, *, cores: int) -> None:
        self.placement = placement
        self._cores = cores
        self._ledger = Ledger()
        self._process: _Process | None = None
        self._lock = threading.Lock()
        self._closed = False

    def run(self, job: ClickJob, hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None) -> TrainResult:
        """Train a model in the separate process; see `shunter.engine.executors.role.Executor.run`.

        Raises:
            TrainingError: The loss is not a number, or the process died; a ProcessLostError if it was killed from
                outside.
            ShunterError: See `shunter.engine.loop.trainer.train`.
            KeyboardInterrupt: The executor was closed, or Ctrl-C.
        """
        task = Task(job=job, checkpointing=checkpointing, wants_steps=hooks.on_step is not None, cores=self._cores)
        return with_model(job, self._train(task, hooks))

    def figures(self, job: ClickJob, hooks: Hooks = Hooks()) -> TrainingFigures:
        """Train a model in the separate process, and return its metrics and times without weights; raises as `run`."""
        task = Task(job=job, wants_model=False, wants_steps=hooks.on_step is not None, cores=self._cores)
        return self._train(task, hooks).figures

    def meter(self) -> LedgerMeter:
        """Return a meter of the energy that training runs of this executor use while the meter is entered."""
        return LedgerMeter(self._ledger)

    def close(self) -> None:
        """End the process; a training run in another thread raises KeyboardInterrupt there."""
        with self._lock:
            self._closed = True
        self._end()

    def _train(self, task: Task, hooks: Hooks) -> Done:
        process = None
        self._ledger.begin()
        try:
            process = self._started()
            try:
                process.take(task)
            except LostError:  # it ended while it was idle, a moment ago
                self._end()
                process = self._started()
                process.take(task)
            return process.train(task, hooks, self._ledger.update)
        except BaseException as error:
            self._ledger.close("the process of the training ended before it said what it used")
            if process is None or not process.is_idle:
                self._end()
            if self._closed:
                raise KeyboardInterrupt from error
            if isinstance(error, LostError):
                raise error.error from None
            raise

    def _started(self) -> "_Process":
        with self._lock:
            if self._closed:
                raise KeyboardInterrupt
            if self._process is not None and self._process.has_ended:  # while idle
                self._process.process.kill()
                self._process = None
            if self._process is None:
                self._process = _Process(self.placement.threads)
            return self._process

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.process.kill()


class _Process:
    """Running worker process, and the `shunter.engine.executors.remote_training.Channel` to it."""

    def __init__(self, threads: int) -> None:
        self.is_idle = True  # no training run is running, and no unexpected error has occurred
        self._connection, theirs = Pipe()
        with theirs:
            descriptor = theirs.fileno()
            self.process = PythonProcess(WORKER, str(descriptor), threads=threads, descriptors=[descriptor])

    @property
    def has_ended(self) -> bool:
        """Return True if the process has ended."""
        return self.process.code is not None

    def take(self, task: Task) -> None:
        """Send the task of a training run to the process; raise LostError if it has ended."""
        self.is_idle = False
        self.order(task)

    def train(self, task: Task, hooks: Hooks, on_energy: Callable[[EnergyReading], None]) -> Done:
        """Follow the training of a task sent by `take`: call the hooks in this process, and return the result."""
        training = RemoteTraining(self, hooks, on_energy=on_energy)
        saves = task.checkpointing is not None
        try:
            done = training.run(must_save=lambda error: saves or isinstance(error, Exception))
        except BaseException as error:
            self.is_idle = training.has_ended and (training.was_interrupted or isinstance(error, ShunterError))
            raise
        self.is_idle = True
        return done

    def receive(self) -> Sequence[Message]:
        """Return the next message, if any arrives within a moment."""
        try:
            return [receive(self._connection)] if self._connection.poll(POLL_SECONDS) else []
        except (EOFError, OSError):
            raise LostError(self._death()) from None

    def order(self, order: Task | Order) -> None:
        try:
            send(self._connection, order)
        except OSError:
            raise LostError(self._death()) from None

    def _death(self) -> TrainingError:
        """Return the error that describes how the process ended."""
        ending = self.process.ending()
        if self.process.ran_out_of_memory:
            return TrainingError(
                "The process of the trial was ended by SIGKILL, since the memory ran out: train fewer at a time, or a "
                "smaller model."
            )
        if self.process.was_ended_from_outside:
            return ProcessLostError(f"The process of the trial {ending}, by whom it does not say: train it again.")
        return TrainingError(
            f"The process of the trial {ending} ({self.process.last_text()}): check the model and its data."
        )
