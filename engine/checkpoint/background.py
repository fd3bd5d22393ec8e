"""Writing while training goes on: one job at a time in a thread of its own."""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from shunter.hardware.devices.openmp import work_without_team

WRITER = "checkpoint"  # name of the thread
# How much others go before it: where training keeps all processors busy, a tenth of one is left to the writer.
NICENESS = 10


class BackgroundWriter:
    """Runs one job at a time; what goes wrong in it is raised where the next one is handed over, or at the end."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._gives_way = False

    @property
    def is_busy(self) -> bool:
        """Whether a job is at work."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], None], *, gives_way: bool = False) -> None:
        """Hand over a job; waits for the one before.

        Args:
            job: What is done.
            gives_way: Whether it is so long that others who train here go before it, until it is waited for.

        Raises:
            Exception: What went wrong in the one before; the new one is not begun.
        """
        self.wait()
        self._gives_way = gives_way
        self._thread = threading.Thread(target=self._run, args=(job, gives_way), name=WRITER, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the job at work.

        Raises:
            Exception: What went wrong in it.
        """
        if self._thread is not None:
            if self._gives_way and self._thread.native_id is not None and self._thread.is_alive():
                _change_niceness(self._thread.native_id, -NICENESS)  # it is waited for now
            self._thread.join()
            self._thread = None
        self.check()

    def wait_at_most(self, seconds: float) -> bool:
        """Wait for the job at work; returns whether it has ended by then."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.is_busy

    def check(self) -> None:
        """Raise what went wrong in a job that has ended, once."""
        if not self.is_busy and self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self, job: Callable[[], None], gives_way: bool) -> None:
        work_without_team()
        if gives_way:
            _change_niceness(threading.get_native_id(), NICENESS)
        try:
            job()
        except BaseException as error:  # it is raised in the thread that trains
            self._error = error


def _change_niceness(thread: int, by: int) -> None:
    """Let one thread run after others, or again beside them, which not every user may; only Linux can."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + by)


class Throttle:
    """Keeps a writer at a rate, so that others who use the disk or the network are not held up.

    Args:
        bytes_per_second: The rate; None is none.
    """

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._free_at = time.monotonic()

    def wrote(self, count: int) -> None:
        """Sleep until as much may have been written."""
        if self._rate is None:
            return
        self._free_at = max(self._free_at, time.monotonic() - 1.0) + count / self._rate
        time.sleep(max(self._free_at - time.monotonic(), 0.0))
