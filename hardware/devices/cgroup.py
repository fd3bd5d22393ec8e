"""What the kernel's control groups leave to this process: a container sees the whole host unless it asks here."""

from collections.abc import Iterator
from pathlib import Path

HOST_ROOT = Path("/")


def cpu_quota(root: Path = HOST_ROOT) -> float | None:
    """Cores' worth of processor time that this process may use, or None when nothing limits it.

    Args:
        root: Root of the file system; tests point it at a copy.
    """
    quotas = []
    for folder in _folders(root, "cpu"):
        words = _fields(folder / "cpu.max")
        if not words:
            words = _fields(folder / "cpu.cfs_quota_us") + _fields(folder / "cpu.cfs_period_us")
        if len(words) == 2 and words[0].isdigit():  # "max" and -1 mean that there is no limit
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_limit_bytes(root: Path = HOST_ROOT) -> int | None:
    """Bytes of memory that this process may use, or None when nothing limits it.

    Args:
        root: Root of the file system; tests point it at a copy.
    """
    limits = []
    for folder in _folders(root, "memory"):
        words = _fields(folder / "memory.max") or _fields(folder / "memory.limit_in_bytes")
        if words and words[0].isdigit():
            limits.append(int(words[0]))
    return min(limits, default=None)


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process' group and of the groups around it, for version 2 and version 1 of control groups."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mount = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = mount / controller if controllers else mount
        parts = [part for part in group.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield base.joinpath(*parts[:depth])


def _fields(path: Path) -> tuple[str, ...]:
    """Words of a kernel file; empty when the file is not there."""
    try:
        return tuple(path.read_text().split())
    except OSError:
        return ()
