"""Writes to our own store go into a log ahead of it, which the disk has to confirm once for each of them.

By SQLite's default a write is confirmed three or four times (its journal, the folder, the database), and a training
makes dozens. A write is as safe as before: it is on the disk when the call returns. Prefect keeps its database in the
home in the same way.
"""

import contextlib
import sqlite3
from pathlib import Path

BEGIN = b"SQLite format 3\x00"
WRITE_VERSION = 18  # byte of the header: 1 of a journal that is rolled back, 2 of a log ahead
LOG_AHEAD = 2
LOCK_SECONDS = 1.0


def log_ahead(database: Path) -> None:
    """Let a database be written by a log ahead of it from now on; where that cannot be, it stays as it is.

    The choice is kept in the file itself. While others have it open it cannot be made, and is left to the next call.

    Args:
        database: SQLite's file; it may be empty still.
    """
    if _is_ahead_or_foreign(database):
        return
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(database, timeout=LOCK_SECONDS)) as tables,
    ):
        tables.execute("PRAGMA journal_mode = WAL")


def _is_ahead_or_foreign(database: Path) -> bool:
    """Whether there is nothing to change: it is so already, or no database at all."""
    try:
        with database.open("rb") as file:
            header = file.read(WRITE_VERSION + 1)
    except OSError:
        return True
    return bool(header) and (not header.startswith(BEGIN) or header[WRITE_VERSION] == LOG_AHEAD)
