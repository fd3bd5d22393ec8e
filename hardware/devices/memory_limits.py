"""Memory limits of this process (setrlimit(2), `ulimit`), and processes killed by the kernel for lack of memory."""

from contextlib import suppress
from pathlib import Path

STATUS = Path("/proc/self/status")
GROUPS, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
MACHINE = Path("/proc/vmstat")


def memory_kills() -> int | None:
    """Return the number of processes that the kernel has killed for lack of memory; None if unavailable.

    The counter is `oom_kill` in `memory.events` of this process's control group (cgroup v2), else in `/proc/vmstat` of
    the machine (Linux, Documentation/admin-guide/cgroup-v2.rst).
    """
    files = [MACHINE]
    with suppress(OSError):
        groups = [line[3:] for line in OWN_GROUP.read_text().splitlines() if line.startswith("0::")]
        files = [*(GROUPS / group.lstrip("/") / "memory.events" for group in groups), MACHINE]
    for file in files:
        with suppress(OSError):
            for line in file.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return None


def memory_left_bytes() -> int | None:
    """Return the bytes that this process may still allocate under its own limits; None without a limit.

    `RLIMIT_AS` counts every mapping. `RLIMIT_DATA` counts private writable memory (libraries' data, heap and stacks),
    but no files mapped for reading or shared.
    """
    try:
        import resource
    except ImportError:  # not Unix
        return None
    left = []
    for limit, field in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            left.append(max(0, most - held_bytes(field)))
    return min(left, default=None)


def held_bytes(field: str) -> int:
    """Return a field of `/proc/self/status` in bytes; 0 if the kernel does not report it."""
    try:
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):  # not Linux
        return 0
