"""What tells one process from every other, whatever becomes of the clock."""

from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


def process_mark(pid: int) -> str | None:
    """The boot and the tick at which a process began; None where there is none of that number.

    Neither a reboot nor a change of the clock makes two processes alike, or one unlike itself: the time of its begin,
    as `psutil` tells it, moves with the clock. An ended process that nobody has waited for counts as gone.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in {"Z", "X"} else f"{BOOT.read_text().strip()}/{fields[18]}"
    except (FileNotFoundError, ProcessLookupError):
        return None
