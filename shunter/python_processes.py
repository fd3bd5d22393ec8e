"""Start of Python processes that files of the current folder cannot influence."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
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
