"""Memory limits of this process (setrlimit(2), `ulimit`)."""

from pathlib import Path

STATUS = Path("/proc/self/status")


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
