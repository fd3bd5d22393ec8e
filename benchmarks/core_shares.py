"""Holds processes to a share of the cores, as a small machine would: the kernel's bandwidth control (cgroups)."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shunter.errors import HardwareError

OLD, NEW = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
PERIOD_MICROSECONDS = 100_000


@contextmanager
def held_to(name: str, cores: float, processes: Iterable[int]) -> Iterator[None]:
    """Let processes, and all that they start from now on, have so many cores together for the length of the block.

    Args:
        name: Of the group, once in this process.
        cores: How many, for instance 0.5.
        processes: Their ids; they must have ended, or be let go, when the block ends.

    Raises:
        HardwareError: This system does not let us.
    """
    quota = round(cores * PERIOD_MICROSECONDS)
    is_old = (OLD / "cpu.cfs_quota_us").exists() or (OLD / "cgroup.procs").exists()
    root = OLD if is_old else NEW
    folder = root / f"shunter-{os.getpid()}-{name}"
    try:
        folder.mkdir(exist_ok=True)
        if is_old:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (folder / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
        for process in processes:
            (folder / "cgroup.procs").write_text(str(process))
    except OSError as error:
        raise HardwareError(
            f"Processes cannot be held to {cores:g} cores ({error.strerror}): run this as root on Linux, with the cpu "
            "controller of cgroups."
        ) from error
    try:
        yield
    finally:
        for process in (folder / "cgroup.procs").read_text().split():
            try:
                (root / "cgroup.procs").write_text(process)
            except OSError:  # it has ended meanwhile
                continue
        folder.rmdir()
