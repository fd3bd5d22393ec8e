"""Age of this process, so that the time of a run includes the start of its process."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

WORKER_RUN = "PREFECT__FLOW_RUN_ID"  # which Prefect's worker gives to the process that it starts for a run
BEGIN_FIELD = 19  # of /proc/<pid>/stat after the name of the program: the tick at which the process began

_of_one_run: ContextVar[bool] = ContextVar("process_of_one_run", default=False)
_ended_at: list[float] = [0.0]  # age of this process when its last such run ended


@contextmanager
def process_of_one_run() -> Iterator[None]:
    """Mark the block as the only run of this process, so that the time before the block counts as part of the run.

    In a second block of the same process, only the time since the end of the first block counts.
    """
    token = _of_one_run.set(True)
    try:
        yield
    finally:
        _of_one_run.reset(token)
        _ended_at[0] = process_age_seconds()


def seconds_before_run() -> float:
    """Return the seconds that this process has spent on its run so far; 0 if it serves several runs."""
    is_its_own = _of_one_run.get() or os.environ.get(WORKER_RUN)
    return process_age_seconds() - _ended_at[0] if is_its_own else 0.0


def process_age_seconds() -> float:
    """Return the wall-clock seconds since this process began, including the start of the interpreter."""
    with suppress(OSError, AttributeError):  # not on Linux
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[BEGIN_FIELD]) / os.sysconf("SC_CLK_TCK")
    import psutil

    return time.time() - psutil.Process().create_time()
