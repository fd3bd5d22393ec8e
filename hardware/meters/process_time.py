"""Processor time of this process and its descendants, and of the whole machine."""

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

from shunter.errors import HardwareError

PROC = Path("/proc")
# Fields, after the name in brackets, of a process's own time and that of its ended children in `/proc/PID/stat`:
# utime, stime, cutime and cstime (`man 5 proc_pid_stat`, fields 14 to 17).
_TIMES = slice(11, 15)
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessTime:
    """Core-seconds of this process and its descendants, and of the whole machine."""

    def __init__(self) -> None:
        self._most = 0.0

    def process_seconds(self) -> float:
        """Return the user and system time of the process, its ended children, and its running descendants."""
        times = os.times()
        used = time.process_time() + times.children_user + times.children_system
        for pid in descendants():
            with suppress(OSError):  # the process has ended
                fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
                used += sum(map(int, fields[_TIMES])) / _TICKS_PER_SECOND
        # A child that ends during this reading is missing from both terms until the next one: never count backwards.
        self._most = max(self._most, used)
        return self._most

    def machine_seconds(self) -> float:
        """Return the busy core-seconds of all processors of the machine."""
        times = psutil.cpu_times()
        # User and nice time already include guest time.
        resting = ("idle", "iowait", "guest", "guest_nice")
        return sum(times) - sum(getattr(times, name, 0.0) for name in resting)


def descendants() -> list[int]:
    """Return the pids of all running descendants of this process.

    A check for any child comes first and takes a microsecond. Then the kernel's lists of children are read. Scanning
    the table of all processes would take milliseconds, in which the training waits for the GIL.

    Raises:
        HardwareError: the processes cannot be listed.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    if not (PROC / "thread-self/children").exists():  # a kernel without CONFIG_PROC_CHILDREN
        return _descendants_by_table()
    found, waiting = [], [os.getpid()]
    while waiting:
        children: list[int] = []
        with suppress(OSError):  # the process has ended
            for thread in (PROC / str(waiting.pop()) / "task").iterdir():
                children += map(int, (thread / "children").read_bytes().split())
        found += children
        waiting += children
    return found


def _descendants_by_table() -> list[int]:
    try:
        return [child.pid for child in psutil.Process().children(recursive=True)]
    except psutil.Error as error:
        raise HardwareError(f"the processor time of the process cannot be read ({error})") from error
