"""Worker process that runs one training run after another, until its connection ends.

Run as `python -m shunter.engine.executors.separate_process_worker DESCRIPTOR`, with the descriptor of an inherited
connection. The data is not sent: its arrays are mapped from files, whose pages all processes of a machine share.
"""

import contextlib
import os
import queue
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from shunter.engine.executors.in_process import load_libraries
from shunter.engine.executors.messages import (
    ContinueOrder,
    EnergyUsed,
    EpochEnded,
    Message,
    Progress,
    Stop,
    Task,
    receive,
    run_to_message,
    send,
)
from shunter.engine.job import Hooks
from shunter.engine.loop.trainer import train
from shunter.engine.results import EpochReport
from shunter.engine.stopping import StopReason
from shunter.hardware.meters.meter import EnergyMeter, measure_energy

NEWS_SECONDS = 0.5  # interval of energy messages
# Without memory the kernel kills the process with the highest score (`man 5 proc`): one trial, not the search.
FIRST_VICTIM = "500"


class Worker:
    """Worker that runs the tasks that arrive over a connection.

    Args:
        connection: Connection for tasks, and for orders to the current task. When it closes, the worker exits at once.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[ContinueOrder | Stop] = queue.SimpleQueue()
        self._stop: Stop | None = None
        self._told_at = 0.0

    def serve(self) -> None:
        """Run the training jobs that arrive from the parent process, one after another, forever."""
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        while True:
            self._carry_out(self._tasks.get())

    def _carry_out(self, task: Task) -> None:
        device = task.job.execution.device
        load_libraries(device)
        with measure_energy(device, cores=task.cores) as meter:
            hooks = self._hooks(task, meter)
            last = run_to_message(lambda: train(task.job, hooks, task.checkpointing), wants_model=task.wants_model)
        self._send(EnergyUsed(meter.reading))
        self._send(last)

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                received = receive(self._connection)
                if isinstance(received, Task):
                    self._stop = None  # reset in the listener thread, because a stop may follow at once
                    self._answers = queue.SimpleQueue()
                    self._tasks.put(received)
                    continue
                if isinstance(received, Stop):
                    self._stop = received
                if isinstance(received, ContinueOrder) or received.because is None:
                    self._answers.put(received)
        os._exit(1)

    def _hooks(self, task: Task, meter: EnergyMeter) -> Hooks:
        def on_step(done: int, total: int) -> None:
            self._send(Progress(done, total))

        def on_epoch(report: EpochReport) -> None:
            """Report the epoch, and wait for the parent process's order to continue or to end the training."""
            self._send(EpochEnded(report))
            if isinstance(self._answers.get(), Stop):
                raise KeyboardInterrupt

        def should_stop() -> StopReason | None:
            if time.monotonic() - self._told_at >= NEWS_SECONDS:
                self._send(EnergyUsed(meter.so_far().model_copy(update={"power": ()})))
                self._told_at = time.monotonic()
            if self._stop is None:
                return None
            if self._stop.because is None:
                raise KeyboardInterrupt
            return self._stop.because

        return Hooks(on_epoch=on_epoch, on_step=on_step if task.wants_steps else None, should_stop=should_stop)

    def _send(self, message: Message) -> None:
        send(self._connection, message)


def main(descriptor: int) -> None:
    """Run the training jobs that arrive over the connection to the parent process."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_VICTIM)
    Worker(Connection(descriptor)).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
