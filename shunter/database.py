"""SQLite databases of the home: switched to a write-ahead log, and copied.

A process never opens a database's files itself. POSIX locks belong to a process and a file, so closing any descriptor
of the file drops the locks of every SQLite connection that the process holds on it. The next connection that closes
elsewhere then deletes the write-ahead log under a running training. Everything here therefore goes through SQLite.
"""

import contextlib
import sqlite3
from pathlib import Path

LOCK_SECONDS = 1.0


def enable_wal(database: Path) -> None:
    """Switch a database to a write-ahead log, so that the disk confirms each write once instead of three times.

    The database file records the mode. A file that is absent, locked or no database stays unchanged.

    Args:
        database: SQLite file; it may be empty.
    """
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(_connect(database, "mode=rw")) as connection,
    ):
        connection.execute("PRAGMA journal_mode = WAL")


def copy_database(source: Path, target: Path, *, is_immutable: bool = False) -> None:
    """Copy a database, which other processes may be writing, as of one moment.

    Args:
        source: SQLite file to copy.
        target: File to write; it keeps its permissions.
        is_immutable: Whether nothing ever writes `source`, so that it is readable in a read-only folder.

    Raises:
        sqlite3.Error: The source cannot be read, or the target cannot be written.
    """
    mode = "mode=ro&immutable=1" if is_immutable else "mode=ro"
    with (
        contextlib.closing(_connect(source, mode)) as copied,
        contextlib.closing(sqlite3.connect(target)) as written,
    ):
        copied.backup(written)


def _connect(database: Path, parameters: str) -> sqlite3.Connection:
    """Connect to a database that exists."""
    return sqlite3.connect(f"{database.resolve().as_uri()}?{parameters}", uri=True, timeout=LOCK_SECONDS)
