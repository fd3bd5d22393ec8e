"""Count of processes killed by the kernel for lack of memory, to distinguish such kills from other kills."""

from pathlib import Path

GROUPS, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
MACHINE = Path("/proc/vmstat")


def memory_kills() -> int | None:
    """Return the number of processes that the kernel has killed for lack of memory; None if unavailable.

    The counter is `oom_kill` in `memory.events` of this process's control group (cgroup v2), else in `/proc/vmstat` of
    the machine (Linux, Documentation/admin-guide/cgroup-v2.rst).
    """
    counts = (_counter(path) for path in (*_own_events(), MACHINE))
    return next((count for count in counts if count is not None), None)


def _own_events() -> list[Path]:
    """Return the event file of this process's control group; empty under cgroup version 1."""
    try:
        lines = OWN_GROUP.read_text().splitlines()
    except OSError:
        return []
    return [GROUPS / line[3:].lstrip("/") / "memory.events" for line in lines if line.startswith("0::")]


def _counter(path: Path) -> int | None:
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    return next((int(word[1]) for word in words if word[0] == "oom_kill"), None)
