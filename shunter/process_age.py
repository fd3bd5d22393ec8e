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


@contextmanager
def process_of_one_run() -> Iterator[None]:
    """Let the run of this block count all that this process has done before as its own, as a command does."""
    token = _of_one_run.set(True)
    try:
        yield
    finally:
        _of_one_run.reset(token)


def seconds_before_run() -> float:
    """Seconds that this process has spent for its run so far; none where it serves others too."""
    return process_age_seconds() if _of_one_run.get() or os.environ.get(WORKER_RUN) else 0.0


def process_age_seconds() -> float:
    """Wall-clock seconds since this process began, the interpreter's own start included."""
    with suppress(OSError, AttributeError):  # not on Linux
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[BEGIN_FIELD]) / os.sysconf("SC_CLK_TCK")
    import psutil

    return time.time() - psutil.Process().create_time()
