"""Whether the kernel has ended processes for want of memory, by which such an end is told from any other kill."""

from pathlib import Path

GROUPS, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
MACHINE = Path("/proc/vmstat")


def memory_kills() -> int | None:
    """Processes that the kernel has ended for want of memory so far; None where it does not say.

    Those of this process's own control group (cgroup v2), where it tells of them, else those of the machine: the
    counters `oom_kill` of `memory.events` and of `/proc/vmstat` (Linux, Documentation/admin-guide/cgroup-v2.rst).
    """
    counts = (_counter(path) for path in (*_own_events(), MACHINE))
    return next((count for count in counts if count is not None), None)


def _own_events() -> list[Path]:
    """The file of the own group; none where the groups are those of version 1."""
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
