"""An empty database of Prefect's server, made once for an environment and copied into each new home.

A server that finds none goes through all of Prefect's migrations, for seconds of the first command of a user.
`make setup` has it made by `python -m shunter.flows.command.empty_database`; where there is none, the server fills an
empty file.
"""

import os
import secrets
import sys
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

from shunter.files import begin_private


def kept() -> Path:
    """Where this environment has it, for its very version of Prefect."""
    return Path(sys.prefix) / "share" / "shunter" / f"prefect-{version('prefect')}.db"


def make(database: Path) -> None:
    """Have Prefect make its tables in a file, in place of one that is there.

    Raises:
        subprocess.CalledProcessError: Prefect could not.
        OSError: The file cannot be written.
    """
    import sqlite3
    import subprocess
    from tempfile import TemporaryDirectory

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    database.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=database.parent) as folder:
        environment |= {"PREFECT_HOME": folder, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
        upgrade = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
        subprocess.run(upgrade, env=environment, cwd=folder, check=True, capture_output=True)
        made = Path(folder) / "prefect.db"
        with closing(sqlite3.connect(made)) as tables:
            tables.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # one file is the whole
        made.replace(database)


def begin(database: Path) -> None:
    """Put the tables where a home has no database yet, or an empty file that nobody else may read.

    Raises:
        OSError: The file cannot be made.
    """
    if not database.exists() and kept().exists():
        with suppress(OSError):  # the file system has no links
            _copy(kept(), database)
    begin_private(database)


def _copy(source: Path, database: Path) -> None:
    """Copy the tables and put them in place in one step; a database that another command put there stays."""
    import sqlite3

    from shunter.database import copy_database

    partial = database.with_name(f".{database.name}.{secrets.token_hex(8)}")
    try:
        begin_private(partial)
        with suppress(sqlite3.Error):  # a damaged source: the server fills an empty file
            copy_database(source, partial, is_immutable=True)
            os.link(partial, database)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    make(kept())
