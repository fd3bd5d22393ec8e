"""How long this process has lived, and whether it serves one run alone."""

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
    """Let the run of this block count all that this process has done before as its own, as a command does.

    A second one in the same process counts from the end of the first.
    """
    token = _of_one_run.set(True)
    try:
        yield
    finally:
        _of_one_run.reset(token)
        _ended_at[0] = process_age_seconds()


def seconds_before_run() -> float:
    """Seconds that this process has spent for its run so far; none where it serves others too."""
    is_its_own = _of_one_run.get() or os.environ.get(WORKER_RUN)
    return process_age_seconds() - _ended_at[0] if is_its_own else 0.0


def process_age_seconds() -> float:
    """Wall-clock seconds since this process began, the interpreter's own start included."""
    with suppress(OSError, AttributeError):  # not on Linux
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[BEGIN_FIELD]) / os.sysconf("SC_CLK_TCK")
    import psutil

    return time.time() - psutil.Process().create_time()
