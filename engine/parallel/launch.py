"""The side of a distributed training that starts it and takes its result."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import torch

import shunter.errors
from engine.config import Execution, Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.parallel.checkpoint import gather_weights
from engine.parallel.plan import Sharding
from engine.parallel.supervise import FAILURES
from engine.parallel.worker import JOB, SOCKET, Job
from engine.results import EpochReport, TrainResult
from models.registry import build_model
from models.spec import ModelSpec
from shunter.errors import HardwareError, RequestError, ShunterError, TrainingError

LOG, KEPT_LOG = "log.txt", "processes.log"
POLL_SECONDS = 0.1
GRACE_SECONDS = 60.0  # to save the state after an interrupt


def train_in_processes(
    dataset: Dataset,
    spec: ModelSpec,
    hyperparameters: Hyperparameters,
    execution: Execution,
    schedule: Schedule,
    *,
    processes: int,
    sharding: Sharding,
    checkpoint_directory: Path,
    checkpoint_seconds: float = 300.0,
    checkpoint_steps: int | None = None,
    on_epoch: Callable[[EpochReport], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], str | None] | None = None,
) -> TrainResult:
    """Train one model in many processes of this machine; arguments and result are those of `engine.loop.trainer.train`.

    Called again after an interruption, also with another number of processes, it goes on from the checkpoint. Dropout
    aside, which every process draws for itself, the losses are those of one process but for the order of additions.

    Args:
        dataset: the data.
        spec: the architecture.
        hyperparameters: what it is learned with.
        execution: on what it runs; `threads` are divided over the processes, `batch_size` is that of all together. On
            `cuda` each process takes a device of its own.
        schedule: for how long, and the seed.
        processes: how many.
        sharding: how the tables may be divided over them.
        checkpoint_directory: where the state is saved, a folder of its own.
        checkpoint_seconds: longest time between two checkpoints; there is one at the end of each epoch anyway.
        checkpoint_steps: most steps between two checkpoints; None leaves it to the time.
        on_epoch: called here after each epoch with its report.
        on_step: called here after each step with the steps done and the steps of `max_epochs`.
        should_stop: called here about after each step; a text ends the training as `budget: <text>`.

    Raises:
        TrainingError: a process died, and with it the training; the last good checkpoint is kept, and beside it
            `processes.log`.
        ShunterError: as `train`.
        KeyboardInterrupt: Ctrl-C; the state has been saved.
    """
    _check(execution, processes)
    job = Job(
        dataset=dataset,
        spec=spec,
        hyperparameters=hyperparameters,
        execution=replace(execution, threads=max(1, execution.threads // processes)),
        schedule=schedule,
        sharding=sharding,
        checkpoint_directory=checkpoint_directory,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_steps=checkpoint_steps,
    )
    with tempfile.TemporaryDirectory(prefix="shunter-") as name:  # a short path: that of a socket has 107 letters
        launched = _Launched(Path(name), job, processes)
        launched.on_epoch, launched.on_step, launched.should_stop = on_epoch, on_step, should_stop
        values = launched.run()
    best = values.pop("best")
    model = build_model(spec, dataset.features, device=_first_device(execution))
    gather_weights(best, model)
    return TrainResult(model=model.eval(), **values)


def _check(execution: Execution, processes: int) -> None:
    if processes < 1:
        raise RequestError(f"A training takes at least one process, not {processes}: raise it.")
    if execution.embedding_cache_rows is not None:
        raise RequestError("The option embedding_cache_rows works in one process: leave it out or use one process.")
    if execution.device.startswith("cuda") and processes > torch.cuda.device_count():
        raise HardwareError(
            f"{processes} processes want a CUDA device each, and torch sees {torch.cuda.device_count()}: use fewer."
        )


def _first_device(execution: Execution) -> str:
    return "cuda:0" if execution.device.startswith("cuda") else execution.device


class _Launched:
    """The processes of one training, while they run."""

    on_epoch: Callable[[EpochReport], None] | None
    on_step: Callable[[int, int], None] | None
    should_stop: Callable[[], str | None] | None

    def __init__(self, folder: Path, job: Job, processes: int) -> None:
        self.folder, self.job, self.processes = folder, job, processes
        self.result: dict[str, Any] | None = None
        self.told_to_stop = False
        (folder / JOB).write_bytes(pickle.dumps(job))

    def run(self) -> dict[str, Any]:
        """Start them, pass on what they report, and return the result."""
        with Listener(str(self.folder / SOCKET)) as listener, self._supervisor() as supervisor:
            connection = self._accept(listener, supervisor)
            if connection is not None:
                with connection:
                    self._follow(connection, supervisor)
            supervisor.wait()
            if supervisor.returncode or self.result is None:
                self.job.checkpoint_directory.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.folder / LOG, self.job.checkpoint_directory / KEPT_LOG)
                raise launch_failure(self.folder, self.processes)
        return self.result

    @contextmanager
    def _supervisor(self) -> Iterator[subprocess.Popen[bytes]]:
        """The process above the others, in a session of its own: Ctrl-C in a terminal reaches this process only."""
        root = str(Path(shunter.errors.__file__).parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        environment["OMP_NUM_THREADS"] = str(self.job.execution.threads)
        command = [sys.executable, "-m", "engine.parallel.supervise", str(self.folder), str(self.processes)]
        with (self.folder / LOG).open("wb") as log:
            supervisor = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield supervisor
        finally:
            if supervisor.poll() is None:
                supervisor.send_signal(signal.SIGTERM)  # it ends its processes
                try:
                    supervisor.wait(GRACE_SECONDS)
                except subprocess.TimeoutExpired:
                    supervisor.kill()
                    supervisor.wait()

    def _accept(self, listener: Listener, supervisor: subprocess.Popen[bytes]) -> Connection | None:
        """The connection of the first process; None when they ended before there was one."""
        listener._listener._socket.settimeout(POLL_SECONDS)  # type: ignore[attr-defined]
        while supervisor.poll() is None:
            try:
                return listener.accept()  # type: ignore[return-value]
            except TimeoutError:
                continue
        return None

    def _follow(self, connection: Connection, supervisor: subprocess.Popen[bytes]) -> None:
        """Pass on reports until the connection ends; an exception here makes the processes save and end."""
        try:
            while True:
                if connection.poll(POLL_SECONDS):
                    kind, values = connection.recv()
                    self._pass_on(kind, values)
                    self._ask_to_stop(connection)
                elif supervisor.poll() is not None:
                    return
        except EOFError:
            return
        except BaseException:
            self._interrupt(connection, supervisor)
            raise

    def _pass_on(self, kind: str, values: Any) -> None:
        if kind == "result":
            self.result = values
        elif kind == "epoch" and self.on_epoch:
            self.on_epoch(EpochReport.from_dict(values))
        elif kind == "step" and self.on_step:
            self.on_step(*values)

    def _ask_to_stop(self, connection: Connection) -> None:
        reason = self.should_stop() if self.should_stop and not self.told_to_stop and self.result is None else None
        if reason:
            self.told_to_stop = True
            try:
                connection.send(reason)
            except OSError:
                return  # they have ended meanwhile

    def _interrupt(self, connection: Connection, supervisor: subprocess.Popen[bytes]) -> None:
        """Let the processes save their state after the current step, and wait until they have."""
        connection.close()  # which they take for an interrupt
        deadline = time.monotonic() + GRACE_SECONDS
        while supervisor.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


def launch_failure(folder: Path, processes: int) -> ShunterError:
    """The one error that says why processes ended without a result.

    Args:
        folder: where they left their errors, their exit codes and their log.
        processes: how many there were.
    """
    for path in sorted(folder.glob("error*.json")):
        name, message = json.loads(path.read_text())
        return getattr(shunter.errors, name)(message)
    failures = folder / FAILURES
    codes = {int(rank): code for rank, code in json.loads(failures.read_text()).items()} if failures.exists() else {}
    killed = next((rank for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM), None)
    failed = min((rank for rank, code in codes.items() if code > 0), default=None)
    if killed is not None:
        what = f"Process {killed} of {processes} was ended by {signal.Signals(-codes[killed]).name}"
    elif failed is not None:
        what = f"Process {failed} of {processes} failed ({_last_words(folder / LOG)})"
    else:
        what = f"The {processes} processes ended without a result ({_last_words(folder / LOG)})"
    return TrainingError(
        f"{what}, so the training stopped: the last good checkpoint is kept, train again to resume from it."
    )


def _last_words(log: Path) -> str:
    """The last line of a log that looks like an exception."""
    lines = log.read_text(errors="replace").splitlines()
    named = [line.split("]: ")[-1] for line in lines if "Error: " in line and "ChildFailedError" not in line]
    return named[-1].strip()[:300] if named else "without a message"
