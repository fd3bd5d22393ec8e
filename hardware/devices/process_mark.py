"""Identifier of a process that stays unique even if pids are reused or the clock changes."""

from pathlib import Path

BOOT = Path("/proc/sys/kernel/random/boot_id")


def process_mark(pid: int) -> str | None:
    """Return the boot id and the start tick of a process; None if no process has the pid.

    The identifier stays unique and constant across reboots and clock changes. The start time that `psutil` gives moves
    with the clock. A zombie process (ended, but not waited for) counts as ended.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in {"Z", "X"} else f"{BOOT.read_text().strip()}/{fields[18]}"
    except (FileNotFoundError, ProcessLookupError):
        return None
