"""Nightly cleanup: rotate the logs of the servers, and remove unused data."""

import logging
import os
import shutil
from pathlib import Path

from shunter.errors import ShunterError
from shunter.settings import Settings

LARGEST_LOG_BYTES = 16 << 20
DAY_SECONDS = 86_400.0
LEFTOVER_AGE_SECONDS = 7 * DAY_SECONDS  # old enough that no process still uses the file
log = logging.getLogger(__name__)


def tidy() -> None:
    """Rotate logs and remove unused data; errors are logged and not raised."""
    from shunter.tasks.retention import find_unused
    from shunter.tracking.leftovers import find_leftovers
    from shunter.tracking.retention import UNUSED_DAYS

    try:
        for path in Settings().services_directory.glob("*.log"):
            rotate(path)
        for leftover in [*find_leftovers(LEFTOVER_AGE_SECONDS), *find_unused(UNUSED_DAYS * DAY_SECONDS)]:
            leftover.remove()
    except (ShunterError, OSError) as error:
        log.warning("The cleanup of this nightly run stopped early: %s", error)


def rotate(path: Path, largest_bytes: int = LARGEST_LOG_BYTES) -> None:
    """Move the content of a log that is too large to a copy, which replaces the former copy, and empty the log.

    A process that appends to the log can continue; a line that is written during the rotation may be lost.

    Args:
        path: Path of the log, which may be missing.
        largest_bytes: Size up to which the log is not rotated.
    """
    if path.exists() and path.stat().st_size > largest_bytes:
        shutil.copy(path, path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)
