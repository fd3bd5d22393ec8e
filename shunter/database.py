"""SQLite databases of the home: write-ahead log, copies, templates of tables, and checks.

A process never opens a database's files itself. POSIX locks belong to a process and a file, so closing any descriptor
of the file drops the locks of every SQLite connection that the process holds on it. The next connection of another
process that closes then deletes the write-ahead log of a running training job. All access therefore goes through
SQLite.

MLflow and Prefect run all their migrations on a database without tables, which would delay the first command by
seconds. `make setup` therefore makes a template database for each of these libraries, which a new home copies.
"""

import contextlib
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from shunter.files import users_of
from shunter.quarantine import quarantine

LOCK_SECONDS = 1.0
BUSY_SECONDS = 20.0


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
    """Replace the content of a database by a consistent snapshot of another database, in one transaction.

    A kill leaves the former content or the new one. Connections of other processes to either database stay valid.

    Args:
        source: SQLite file to copy.
        target: SQLite file to write; it keeps its permissions.
        is_immutable: Whether nothing ever writes `source`, so that it is readable in a read-only folder.

    Raises:
        sqlite3.Error: The source cannot be read, or the target cannot be written.
    """
    deadline = time.monotonic() + BUSY_SECONDS

    def raise_if_locked(status: int, remaining: int, total: int) -> None:
        if status in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} and time.monotonic() > deadline:
            raise sqlite3.OperationalError("database is locked")  # `backup` would try again for ever

    mode = "mode=ro&immutable=1" if is_immutable else "mode=ro"
    with contextlib.closing(_connect(source, mode)) as copied, opened(target) as written:
        copied.backup(written, progress=raise_if_locked)


def template_path(library: str) -> Path:
    """Return the path of the template database for the installed version of a library, in this Python environment."""
    return Path(sys.prefix) / "share" / "shunter" / f"{library}-{version(library)}.db"


def keep_template(library: str, make_tables: Callable[[Path], Path]) -> None:
    """Make the template database of a library; replace an earlier template.

    Args:
        library: Name of the library's distribution.
        make_tables: Makes the database in an empty folder and returns its path.

    Raises:
        OSError: The file cannot be written.
    """
    template = template_path(library)
    template.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=template.parent) as folder:
        make_tables(Path(folder)).replace(template)


def locked(database: Path) -> FileLock:
    """Return the file lock that a process must hold while it makes or migrates the tables of a database."""
    return FileLock(database.with_name(f"{database.name}.lock"), mode=0o600)


def has_tables(database: Path) -> bool:
    """Return True if a database holds any table.

    Raises:
        sqlite3.Error: The file is no database or cannot be read.
    """
    with opened(database) as connection:
        return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None


def fault_of(database: Path, *, most_bytes: int | None = None) -> str | None:
    """Return the fault that SQLite finds in a database; None if it finds none.

    Args:
        database: Database file; a missing, empty or busy file has no fault.
        most_bytes: Size above which only the schema is read; None checks every page.
    """
    try:
        size = database.stat().st_size
        if not size:
            return None
        with contextlib.closing(_connect(database, "mode=rw")) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if most_bytes is not None and size > most_bytes:
                return None
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except OSError:
        return None
    except sqlite3.DatabaseError as error:
        # A lock of another process, or a folder without the right to write, is no damage.
        return str(error) if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB} else None
    return None if found == "ok" else found.splitlines()[0]


def quarantine_database(database: Path, reason: str) -> Path | None:
    """Move a damaged database that can be recreated, with its write-ahead log, into the quarantine.

    Returns:
        New path; None if the database was not moved because a process has it open.
    """
    if users_of(database):
        return None
    moved = quarantine(database, reason)
    for suffix in ("-wal", "-shm", "-journal"):
        beside = database.with_name(database.name + suffix)
        if moved is not None and beside.exists():
            with contextlib.suppress(OSError):
                beside.rename(moved.with_name(moved.name + suffix))
    return moved


@contextlib.contextmanager
def opened(database: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for the length of the block; each statement is a transaction, unless the caller begins one."""
    with contextlib.closing(sqlite3.connect(database, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        yield connection


def _connect(database: Path, parameters: str) -> sqlite3.Connection:
    """Connect to a database that exists."""
    return sqlite3.connect(f"{database.resolve().as_uri()}?{parameters}", uri=True, timeout=LOCK_SECONDS)
