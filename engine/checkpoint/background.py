"""Background writer that runs one write job at a time in a separate thread, and a limit on its write rate."""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from shunter.hardware.devices.openmp import work_without_team

WRITER = "checkpoint"  # name of the thread
# Niceness of a long write: where training keeps all cores busy, the writer gets a tenth of one core.
NICENESS = 10


class BackgroundWriter:
    """Writer that runs one job at a time in a thread; the next `start`, `wait` or `check` raises a job's error."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._gives_way = False

    @property
    def is_busy(self) -> bool:
        """Return True if a job is running."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], None], *, gives_way: bool = False) -> None:
        """Wait for the previous job, then start a new job.

        Args:
            job: Function that writes.
            gives_way: Whether the job is long, so that training threads get priority over it until `wait` is called.

        Raises:
            Exception: Error of the previous job; the new job is not started.
        """
        self.wait()
        self._gives_way = gives_way
        self._thread = threading.Thread(target=self._run, args=(job, gives_way), name=WRITER, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the running job has ended, and raise its error if it failed.

        Raises:
            Exception: Error of the job.
        """
        if self._thread is not None:
            if self._gives_way and self._thread.native_id is not None and self._thread.is_alive():
                _change_niceness(self._thread.native_id, -NICENESS)  # training waits for the job now
            self._thread.join()
            self._thread = None
        self.check()

    def wait_at_most(self, seconds: float) -> bool:
        """Wait up to `seconds` for the running job; return True if no job is running afterwards."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.is_busy

    def check(self) -> None:
        """Raise the error of a job that has ended, once."""
        if not self.is_busy and self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self, job: Callable[[], None], gives_way: bool) -> None:
        work_without_team()
        if gives_way:
            _change_niceness(threading.get_native_id(), NICENESS)
        try:
            job()
        except BaseException as error:  # raised again in the training thread
            self._error = error


def _change_niceness(thread: int, by: int) -> None:
    """Add `by` to the niceness of a thread on Linux; not every user may lower it, and a refusal is ignored."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + by)


class Throttle:
    """Rate limit of a writer, which leaves disk and network bandwidth to other processes.

    Args:
        bytes_per_second: Largest rate; None is no limit.
    """

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._free_at = time.monotonic()

    def wrote(self, count: int) -> None:
        """Sleep after a write of `count` bytes, as long as the rate limit requires."""
        if self._rate is None:
            return
        self._free_at = max(self._free_at, time.monotonic() - 1.0) + count / self._rate
        time.sleep(max(self._free_at - time.monotonic(), 0.0))
