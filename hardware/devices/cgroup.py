"""CPU and memory limits of the kernel's control groups, without which a container sees the whole host."""

from collections.abc import Iterator
from pathlib import Path

HOST_ROOT = Path("/")  # tests pass the root of a copy


def cpu_quota(root: Path = HOST_ROOT) -> float | None:
    """Return the processor time that this process may use, in cores; None without a limit.

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
    """Return the bytes of memory that this process may use; None without a limit.

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
    """Yield the folders of this process's control group and its parent groups, for cgroup versions 1 and 2."""
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
    return tuple(kernel_text(path).split())


def kernel_text(path: Path) -> str:
    """Return the content of a kernel file without surrounding white space; empty if it is absent or unreadable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
