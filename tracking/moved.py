"""A home that was moved or copied: MLflow's own store says where its artifacts are now.

MLflow writes the full path of each artifact into its database and offers no way to change it, so the columns that hold
one are changed there, all at once or not at all.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

# Of MLflow 3.17, which is pinned; a column that another version has not is passed over.
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def follow_move(database: Path, experiment: str, root: Path) -> bool:
    """Let the store find its artifacts in a folder that was moved or copied with it; returns whether anything changed.

    Args:
        database: SQLite file of the store; it may not be there yet.
        experiment: Name of the experiment, whose folder tells where the artifacts were.
        root: Folder where they are now.
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
    except sqlite3.Error:  # no tables yet, or locked: whoever opens the store will say so
        return None
    return found[0] if found else None
