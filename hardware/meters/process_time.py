"""Processor time of this process and its descendants, and of the whole machine."""

import os
import time
from pathlib import Path

import psutil

from shunter.errors import HardwareError

PROC = Path("/proc")
# Positions, after the name in brackets, of a process' own time and that of its ended children in `/proc/PID/stat`:
# utime, stime, cutime and cstime (`man 5 proc_pid_stat`, fields 14 to 17).
_TIMES = slice(11, 15)
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessTime:
    """Core-seconds of this process and its descendants, and of the whole machine."""

    def __init__(self) -> None:
        self._most = 0.0

    def process_seconds(self) -> float:
        """User and system time of the process, of its ended children, and of the descendants that run now."""
        times = os.times()
        used = time.process_time() + times.children_user + times.children_system
        used += sum(_used_seconds(pid) for pid in descendants())
        # A child that ends while we look is missing from both accounts until the next reading: never count backwards.
        self._most = max(self._most, used)
        return self._most

    def machine_seconds(self) -> float:
        """Time that all processors of the machine were busy."""
        times = psutil.cpu_times()
        # Guests are counted in user and nice time as well.
        resting = ("idle", "iowait", "guest", "guest_nice")
        return sum(times) - sum(getattr(times, name, 0.0) for name in resting)


def descendants() -> list[int]:
    """Processes that this one started, and theirs.

    Whether there are any is asked first, which takes a microsecond. Then the kernel's own lists of children are read:
    the table of all processes would take milliseconds, in which the training waits for Python's lock.

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
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    """Processes that any thread of a process started; none of one that has ended meanwhile."""
    found: list[int] = []
    try:
        for thread in (PROC / str(pid) / "task").iterdir():
            found += map(int, (thread / "children").read_bytes().split())
    except OSError:
        return found
    return found


def _descendants_by_table() -> list[int]:
    try:
        return [child.pid for child in psutil.Process().children(recursive=True)]
    except psutil.Error as error:
        raise HardwareError(f"the processor time of the process cannot be read ({error})") from error


def _used_seconds(pid: int) -> float:
    """Core-seconds of a process and its ended children; 0 once it has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[_TIMES])) / _TICKS_PER_SECOND
