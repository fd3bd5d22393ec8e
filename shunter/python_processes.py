"""Start of Python processes that files of the current folder cannot influence, and age and imports of this process."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from shunter.files import make_private
from shunter.settings import Settings


def start_python(
    *arguments: str, environment: Mapping[str, str] | None = None, folder: Path | None = None, **options: Any
) -> "subprocess.Popen[bytes]":
    """Start `python arguments` such that no module of the current folder hides one of the environment.

    Args:
        arguments: Script or `-m module`, and its arguments.
        environment: Variables of the process; this process's own if omitted.
        folder: Working folder; if omitted, a private folder in SHUNTER_HOME, so that no settings file of other users is
            read.
        options: Further options of `subprocess.Popen`.

    Raises:
        OSError: The process or its folder cannot be made.
    """
    variables = dict(os.environ if environment is None else environment)
    if folder is None:
        folder = Settings().process_directory
        make_private(folder)
    # The processes that this process starts, such as the runs of Prefect's worker, inherit the safe path.
    variables |= {"PYTHONSAFEPATH": "1", **Settings().absolute_paths(variables)}
    if paths := variables.get("PYTHONPATH"):
        variables["PYTHONPATH"] = os.pathsep.join(str(Path(one).absolute()) for one in paths.split(os.pathsep) if one)
    command = [sys.executable, "-P", *arguments]
    # A terminal sends these two to every process that it shows. This process ends the others in order; they inherit the
    # blocked signals.
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGQUIT})
    try:
        return subprocess.Popen(command, cwd=folder, env=variables, **options)  # pyright: ignore[reportReturnType]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


def run_python(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a Python process like `start_python`, and return its exit code and its output.

    Raises:
        OSError: The process or its folder cannot be made.
    """
    pipe = subprocess.PIPE
    with start_python(*arguments, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, **options) as process:
        output, errors = (stream.decode(errors="replace") for stream in process.communicate())
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


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


@contextmanager
def loading(module: str) -> Iterator[None]:
    """Disable garbage collection while a block loads a library, then exempt the loaded objects from later collections.

    Each collection takes a tenth of a second to scan a million objects of modules, which are never garbage. Starting
    the `shunter` command would cause six. Cyclic garbage that the block creates is never freed. Collection therefore
    stays enabled if the module is already loaded.
    """
    if module in sys.modules:
        yield
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
