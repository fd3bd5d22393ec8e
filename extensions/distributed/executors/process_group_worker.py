"""Worker of a multi-process training: `python -m shunter.extensions.distributed.executors.process_group_worker FOLDER`.

The first process of the group reports to the process that started the training, through an inherited connection.
"""

import faulthandler
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import distributed as dist

from shunter.engine.executors.messages import Done, EpochEnded, Failed, Message, Progress, Stop, Task, receive, send
from shunter.engine.job import Hooks
from shunter.errors import ShunterError
from shunter.extensions.distributed.executors.process_group import TASK
from shunter.extensions.distributed.links.processes import REPORT_DESCRIPTOR, end_process, join_group
from shunter.extensions.distributed.private_files import read_private
from shunter.extensions.distributed.training.plan import Sharding
from shunter.extensions.distributed.training.processes import train_together


def main(folder: Path, rank: int) -> int:
    """Train as process `rank` of the group that reads its task from `folder`; return the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # interrupts come as orders, to all processes at once
    task: Task
    sharding: Sharding
    task, sharding = read_private(folder / TASK)
    assert task.checkpointing is not None, "the weights are returned as files"
    execution = task.job.execution
    on_gpu = execution.device.startswith("cuda")
    device = f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else execution.device
    job = replace(task.job, execution=replace(execution, device=device))
    connection, hooks, read = None, Hooks(), None
    if rank == 0:  # which reports the progress to the process that started the training
        connection = Connection(int(os.environ[REPORT_DESCRIPTOR]))
        hooks = Hooks(
            on_epoch=lambda report: _send(connection, EpochEnded(report)),
            on_step=lambda done, total: _send(connection, Progress(done, total)),
        )
        read = partial(_read, connection)
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    join_group(folder, "cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=None)
    try:
        last: Message = Done(*train_together(job, hooks, task.checkpointing, sharding, read=read))
    except KeyboardInterrupt as error:  # the state has been saved
        last = Failed(error)
    except ShunterError as error:
        _send(connection, Failed(error))
        raise
    finally:
        dist.destroy_process_group()
    _send(connection, last)
    return 0


def _read(connection: Connection) -> Stop | None:
    """Return the received order to stop; None if there is none."""
    try:
        while connection.poll():
            order = receive(connection)
            if isinstance(order, Stop):
                return order
    except (EOFError, OSError):  # the caller is gone
        return Stop(None)
    return None


def _send(connection: Connection | None, message: Message) -> None:
    """Send a message to the process that started the training; if that process is gone, `_read` detects it."""
    if connection is not None:
        with suppress(OSError):
            send(connection, message)


if __name__ == "__main__":
    faulthandler.enable()
    own_rank = int(os.environ["RANK"])
    end_process(Path(sys.argv[1]), own_rank, lambda: main(Path(sys.argv[1]), own_rank))
