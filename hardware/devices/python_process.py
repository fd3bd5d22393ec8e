"""Python subprocess of this machine that runs a module of Shunter and can describe how it ended."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import shunter.errors
from shunter.hardware.devices.memory_limits import memory_kills
from shunter.python_processes import start_python

FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
LONGEST_WORDS = 300  # most characters of a process's output in a message


class PythonProcess:
    """Subprocess that runs `python -m module arguments`.

    The process has its own session, so that Ctrl-C in a terminal does not reach it. The caller must end it.

    Args:
        module: Module to run, with the import path of this process.
        arguments: Command-line arguments.
        threads: Threads of the libraries that read the environment (`OMP_NUM_THREADS`).
        log: File of the output; None uses a temporary file.
        environment: Variables added to those of this process.
        descriptors: Open files that the process inherits under the same numbers.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        threads: int,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        root = str(Path(shunter.errors.__file__).parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._log = log.open("w+b") if log else tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is gone
        self._memory_kills = memory_kills()
        self._process = start_python(
            *("-m", module, *arguments),
            folder=Path.cwd(),  # tasks name files relative to the folder of the command
            environment={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "OMP_NUM_THREADS": str(threads),
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            pass_fds=descriptors,
        )

    @property
    def code(self) -> int | None:
        """Return the exit code, or minus the number of the signal that ended the process; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the process for some seconds at most; return True if it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the process, wait for its end, and close its log."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    @property
    def ran_out_of_memory(self) -> bool:
        """Return True if the kernel killed the process for lack of memory, as far as its counters show."""
        return self.code == -signal.SIGKILL and memory_kills() != self._memory_kills

    @property
    def was_ended_from_outside(self) -> bool:
        """Return True if SIGKILL or SIGTERM ended the process, except for lack of memory."""
        return self.code in FROM_OUTSIDE and not self.ran_out_of_memory

    def ending(self) -> str:
        """Wait for the process, and return a description of its end that completes a sentence."""
        code = self._process.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"

    def output(self) -> str:
        """Return the whole output; empty after `kill`."""
        if self._log.closed:
            return ""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")

    def last_text(self) -> str:
        """Return the last error in the output of the process, else its last line."""
        lines = [line.strip() for line in self.output().splitlines() if line.strip()]
        errors = [line for line in lines if "Error: " in line]
        return ([*lines, *errors] or ["without a message"])[-1][:LONGEST_WORDS]
