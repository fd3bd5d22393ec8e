"""Quarantine: folder of a home for damaged files, which stay available for inspection."""

import contextlib
import logging
from datetime import UTC, datetime
from pathlib import Path

from shunter.files import make_private

FOLDER = "quarantine"
log = logging.getLogger(__name__)


def quarantine(path: Path, reason: str) -> Path | None:
    """Move a damaged file or folder into the quarantine of its home, and log one line.

    Args:
        path: The file or folder; a move does not affect processes that have the file open.
        reason: Description of the damage, for the log.

    Returns:
        Its new path; None if another process moved it first, or the file system refuses.
    """
    target = _place(path)
    try:
        make_private(target.parent)
        path.rename(target)
    except OSError:
        return None
    log.warning("%s is damaged (%s): moved to %s; it will be recreated.", path, reason, target)
    return target


def _place(path: Path) -> Path:
    """Return an unused path in the quarantine: below the home, or beside a file outside of the home."""
    root, inner = path.parent, Path(path.name)
    with contextlib.suppress(ImportError, ValueError):  # without settings on a machine where only the engine runs
        from shunter.settings import settings

        home = settings().home
        inner, root = path.absolute().relative_to(home.absolute()), home
    stem = root / FOLDER / inner.parent / f"{inner.name}.{datetime.now(UTC):%Y%m%dT%H%M%S}"
    number, place = 1, stem
    while place.exists():
        number, place = number + 1, stem.with_name(f"{stem.name}-{number}")
    return place
