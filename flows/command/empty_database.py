"""Template databases of Prefect and MLflow without data, made once per environment and copied to each new home.

`make setup` makes both databases by `python -m shunter.flows.command.empty_database`.
"""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from shunter.database import copy_database, has_tables, keep_template, locked, template_path
from shunter.files import begin_private
from shunter.python_processes import run_python
from shunter.tracking import store_schema

PREFECT = "prefect"


def make_tables(folder: Path) -> Path:
    """Create Prefect's tables in an empty folder and return the path of the database.

    Raises:
        subprocess.CalledProcessError: Prefect failed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    upgrade = ("-m", "prefect", "server", "database", "upgrade", "--yes")
    run_python(*upgrade, environment=environment, folder=folder).check_returncode()
    database = folder / "prefect.db"
    with closing(sqlite3.connect(database)) as tables:
        tables.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # writes the whole database to one file
    return database


def begin(database: Path) -> None:
    """Create the tables of Prefect's server in a home's database if it has none; only its owner may read the file.

    Without a template in the environment, the file stays empty, and the server creates its tables in one transaction.

    Raises:
        OSError: The file cannot be created.
    """
    begin_private(database)
    template = template_path(PREFECT)
    if not template.exists():
        return
    with suppress(sqlite3.Error):  # the file is damaged or locked; the server will report it
        if has_tables(database):
            return
        with locked(database):
            if not has_tables(database):  # no other command has created them meanwhile
                copy_database(template, database, is_immutable=True)


if __name__ == "__main__":
    keep_template(PREFECT, make_tables)
    keep_template(store_schema.LIBRARY, store_schema.make_tables)
