"""What the limits of this process (setrlimit(2), `ulimit`) leave it of memory."""

from pathlib import Path

STATUS = Path("/proc/self/status")


def memory_left_bytes() -> int | None:
    """Bytes that this process may still take before its own limits refuse more; None where it has none.

    `RLIMIT_AS` counts every mapping, `RLIMIT_DATA` what is private and writable: libraries' data, heap and stacks, but
    no file that is mapped for reading or shared.
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
    """A field of the kernel's account of this process; 0 where it does not say."""
    try:
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):  # not Linux
        return 0
