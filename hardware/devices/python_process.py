"""A Python process of this machine that runs a module of ours: started alike everywhere, and able to say its end."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import shunter.errors
from shunter.hardware.devices.memory_kills import memory_kills
from shunter.python_processes import start_python

FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
LONGEST_WORDS = 300  # of a process's output in a message


class PythonProcess:
    """Runs `python -m module arguments` until it has ended.

    It is in a session of its own, where Ctrl-C in a terminal does not reach it: whoever started it ends it.

    Args:
        module: The module, found wherever this process was started from.
        arguments: Its command line.
        threads: Threads of the libraries that ask the environment.
        log: File of its output; None keeps the output out of sight.
        environment: Variables beside those of this process.
        descriptors: Open files that it inherits under the same numbers, which are all that it can be told by.
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
            folder=Path.cwd(),  # its tasks name files relative to the folder of the command
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
        """Its exit code, or minus the number of the signal that ended it; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, no longer than so many seconds; returns whether it has."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it now, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has ended it, as far as its counters tell, for want of memory."""
        return self.code == -signal.SIGKILL and memory_kills() != self._memory_kills

    @property
    def was_ended_from_outside(self) -> bool:
        """Whether somebody has ended it, for reasons that are not its own."""
        return self.code in FROM_OUTSIDE and not self.ran_out_of_memory

    def ending(self) -> str:
        """How it ended, as the end of a sentence; waits for it."""
        code = self._process.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended by itself with code {code}"

    def output(self) -> str:
        """All that it has written."""
        if self._log.closed:
            return ""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")

    def last_words(self) -> str:
        """The last error in its output, or else its last line."""
        lines = [line.strip() for line in self.output().splitlines() if line.strip()]
        errors = [line for line in lines if "Error: " in line]
        return ([*lines, *errors] or ["without a message"])[-1][:LONGEST_WORDS]
