"""What is done every night beside the training: logs of the servers begin anew, and what nobody needs goes."""

import logging
import os
import shutil
from pathlib import Path

from shunter.errors import ShunterError
from shunter.settings import Settings

LARGEST_LOG_BYTES = 16 << 20
DAY_SECONDS = 86_400.0
LEFTOVER_AGE_SECONDS = 7 * DAY_SECONDS  # older than anybody may still be at work on it
log = logging.getLogger(__name__)


def tidy() -> None:
    """Do it all; what cannot be done is said, and ends nothing."""
    from shunter.tasks.retention import find_unused
    from shunter.tracking.leftovers import find_leftovers
    from shunter.tracking.retention import UNUSED_DAYS

    try:
        for path in Settings().services_directory.glob("*.log"):
            rotate(path)
        for leftover in [*find_leftovers(LEFTOVER_AGE_SECONDS), *find_unused(UNUSED_DAYS * DAY_SECONDS)]:
            leftover.remove()
    except (ShunterError, OSError) as error:
        log.warning("Nothing more was tidied up this night: %s", error)


def rotate(path: Path, largest_bytes: int = LARGEST_LOG_BYTES) -> None:
    """Keep a log that has grown too large beside itself, in the place of the one before, and let it begin anew.

    Whoever writes to it, at its end, goes on; a line that is written at this very moment may be lost.

    Args:
        path: The log, which may not be there.
        largest_bytes: Size up to which it stays.
    """
    if path.exists() and path.stat().st_size > largest_bytes:
        shutil.copy(path, path.with_name(f"{path.name}.1"))
        os.truncate(path, 0)
