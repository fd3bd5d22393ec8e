"""Update of artifact paths in MLflow's SQLite store after the home is moved or copied.

MLflow stores full artifact paths in its database and offers no way to change these paths. The columns with paths are
therefore updated in the database, in one transaction.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

# Columns with paths in MLflow 3.17, which is pinned; columns missing in another version are skipped.
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def follow_move(database: Path, experiment: str, root: Path) -> bool:
    """Update the artifact paths of a moved or copied store; return True if the paths are updated.

    Args:
        database: SQLite file of the store, which may not exist yet.
        experiment: Name of the experiment whose artifact location is the former folder.
        root: Current folder of the artifacts.
    """
    if not database.exists() or not root.is_dir():
        return False
    with closing(sqlite3.connect(database)) as connection, connection:
        former = _former_root(connection, experiment)
        if former is None or former == str(root) or not former.startswith("/"):
            return False
        for table, column in COLUMNS:
            if column in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column} || '/', 1, ?) = ?",
                    (str(root), len(former) + 1, len(former) + 1, f"{former}/"),
                )
    return True


def _former_root(connection: sqlite3.Connection, experiment: str) -> str | None:
    try:
        found = connection.execute("SELECT artifact_location FROM experiments WHERE name = ?", (experiment,)).fetchone()
    except sqlite3.Error:  # no tables yet, or locked: opening the store reports the error
        return None
    return found[0] if found else None
