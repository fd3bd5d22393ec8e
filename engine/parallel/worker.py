"""What each process of a distributed training runs: `python -m engine.parallel.worker FOLDER`, by torchrun.

The first process talks to the one that started the training, through the socket in the folder.
"""

import faulthandler
import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from engine.config import Execution, Hyperparameters, Schedule
from engine.data.dataset import Dataset
from engine.loop.trainer import train
from engine.parallel.checkpoint import ShardedCheckpoint
from engine.parallel.plan import Sharding, with_link
from engine.parallel.processes import ManyProcesses, broadcast_number
from engine.results import EpochReport, TrainResult
from models.spec import ModelSpec
from shunter.errors import ShunterError

JOB, SOCKET = "job.pickle", "socket"
GO_ON, STOP, INTERRUPT = range(3)


@dataclass(frozen=True, kw_only=True)
class Job:
    """All arguments of a distributed training, as they travel to its processes."""

    dataset: Dataset
    spec: ModelSpec
    hyperparameters: Hyperparameters
    execution: Execution
    schedule: Schedule
    sharding: Sharding
    checkpoint_directory: Path
    checkpoint_seconds: float
    checkpoint_steps: int | None


def main(folder: Path) -> int:
    """Take part in the training whose job lies in `folder`; a ShunterError is left beside it.

    Returns:
        The exit code.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # interrupts come by the socket, to all processes at once
    job: Job = pickle.loads((folder / JOB).read_bytes())
    rank = int(os.environ["RANK"])
    connection = Client(str(folder / SOCKET)) if rank == 0 else None
    try:
        with _group(job.execution):
            _train(job, connection)
    except ShunterError as error:
        (folder / f"error{rank}.json").write_text(json.dumps([type(error).__name__, str(error)]))
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # the state has been saved
    return 0


@contextmanager
def _group(execution: Execution) -> Iterator[None]:
    """Join the process group: gloo between processors, beside it NCCL between GPUs."""
    on_gpu = execution.device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def _train(job: Job, connection: Connection | None) -> None:
    """Train, reporting to whoever started it."""
    device = f"cuda:{os.environ['LOCAL_RANK']}" if job.execution.device.startswith("cuda") else job.execution.device
    processes = _Reported(job.dataset, with_link(job.sharding, torch.device(device), job.checkpoint_directory))
    result = train(
        job.dataset,
        job.spec,
        job.hyperparameters,
        Execution(**{**asdict(job.execution), "device": device}),
        job.schedule,
        checkpoint_directory=job.checkpoint_directory,
        checkpoint_seconds=job.checkpoint_seconds,
        checkpoint_steps=job.checkpoint_steps,
        on_epoch=_sender(connection, "epoch", EpochReport.to_dict),
        on_step=_sender(connection, "step", lambda *counts: counts),
        should_stop=_Orders(connection),
        processes=processes,
    )
    memory = torch.tensor([result.peak_memory_bytes])
    dist.all_reduce(memory)
    if connection is not None:
        assert processes.kept is not None
        connection.send(("result", _plain(result, processes.kept, int(memory))))


class _Reported(ManyProcesses):
    """Remembers the checkpoint, which knows where the best weights lie."""

    kept: ShardedCheckpoint | None = None

    def checkpoint(self, directory: Path, identity: dict[str, Any]) -> ShardedCheckpoint:
        self.kept = super().checkpoint(directory, identity)
        return self.kept


class _Orders:
    """What the one who started the training wants, asked after each step: the first process reads, all obey."""

    def __init__(self, connection: Connection | None) -> None:
        self._connection = connection

    def __call__(self) -> str | None:
        order, reason = self._read()
        agreed = broadcast_number(order)
        if agreed == INTERRUPT:
            raise KeyboardInterrupt
        return reason if agreed == STOP else None

    def _read(self) -> tuple[int, str]:
        if self._connection is None:
            return GO_ON, "stopped by the first process"
        try:
            reason = self._connection.recv() if self._connection.poll() else ""
        except (EOFError, OSError):  # it is gone, so nobody waits for a result
            return INTERRUPT, ""
        if reason is None:
            return INTERRUPT, ""
        return (STOP, reason) if reason else (GO_ON, "")


def _sender(connection: Connection | None, kind: str, plain: Callable[..., Any]) -> Callable[..., None] | None:
    """A callback that passes its arguments on; one who has gone is found out at the next order."""
    if connection is None:
        return None

    def send(*arguments: Any) -> None:
        try:
            connection.send((kind, plain(*arguments)))
        except OSError:
            return

    return send


def _plain(result: TrainResult, checkpoint: ShardedCheckpoint, memory_bytes: int) -> dict[str, Any]:
    """The result without its model, whose weights are named instead."""
    fields = {name: value for name, value in vars(result).items() if name != "model"}
    return {**fields, "peak_memory_bytes": memory_bytes, "best": checkpoint.best}


if __name__ == "__main__":
    faulthandler.enable()
    try:
        code = main(Path(sys.argv[1]))
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not `sys.exit`: while Python takes itself down, threads of the communication library are now and then found
    # running, and abort a process that had come to its end.
    os._exit(code)
