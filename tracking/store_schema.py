"""Atomic creation and migration of MLflow's schema in a SQLite store, safe under kills and concurrent processes.

MLflow commits each migration step separately. A kill therefore leaves a schema that later starts cannot use, and two
concurrent processes corrupt each other's schema. This module creates or migrates the schema in one transaction, under
a lock.
"""

import sqlite3
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from shunter.database import BUSY_SECONDS, copy_database, locked, opened, template_path
from shunter.errors import TrackingError, first_line
from shunter.files import begin_private

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

LIBRARY = "mlflow"
LOCATION = "mlflow:store/db_migrations"
DEFAULT_EXPERIMENT = 0
UNFINISHED = "_alembic_tmp_"  # prefix of the temporary table that replaces a table in a migration
# Rows of an empty store. Every other row of any table is user data.
SEEDED = {"experiments": f"experiment_id = {DEFAULT_EXPERIMENT}", "workspaces": "name = 'default'"}


def ensure_schema(database: Path, artifact_root: str) -> None:
    """Create or migrate the schema of a store to that of the installed MLflow; an up-to-date store is unchanged.

    A store without user data, even with an incomplete schema, gets new tables. A store with runs is migrated, and a
    copy of its former state is stored next to the file.

    Args:
        database: SQLite file, which may be empty.
        artifact_root: Folder of the artifacts.

    Raises:
        TrackingError: The schema of a store with runs cannot be migrated; the store is unchanged.
        sqlite3.Error: The file is not a database, or cannot be read or written.
        OSError: The folder cannot be written.
    """
    if _is_ready(database):
        return
    with locked(database):
        if _is_ready(database):  # another process was faster
            return
        if revision_of(database) != newest_revision():
            with opened(database) as tables:
                names = _table_names(tables) - {"alembic_version"}
                seeded = {name: SEEDED.get(name.removeprefix(UNFINISHED), "false") for name in names}
                queries = [f'SELECT 1 FROM "{name}" WHERE NOT ({rows}) LIMIT 1' for name, rows in seeded.items()]
                has_user_data = any(tables.execute(query).fetchone() for query in queries)
            template = template_path(LIBRARY)
            if has_user_data:
                _migrate(database)
            elif _revision_of_template(template):
                copy_database(template, database, is_immutable=True)
            else:
                with TemporaryDirectory() as folder:
                    copy_database(make_tables(Path(folder)), database)
        now_milliseconds = int(time.time() * 1000)
        with opened(database) as tables:  # as MLflow does at its first start on an empty store
            tables.execute(
                "INSERT OR IGNORE INTO experiments "
                "(experiment_id, name, artifact_location, lifecycle_stage, creation_time, last_update_time) "
                "VALUES (?, 'Default', ?, 'active', ?, ?)",
                (DEFAULT_EXPERIMENT, f"{artifact_root}/{DEFAULT_EXPERIMENT}", now_milliseconds, now_milliseconds),
            )


def make_tables(folder: Path) -> Path:
    """Create an empty store in an empty folder and return its file."""
    database = folder / "mlflow.db"
    upgrade(database)
    return database


def revision_of(database: Path) -> str | None:
    """Return the revision of a store's schema; None if the store has no schema.

    Raises:
        sqlite3.Error: The file is not a database or cannot be read.
    """
    with opened(database) as tables:
        if "alembic_version" not in _table_names(tables):
            return None
        found = tables.execute("SELECT version_num FROM alembic_version").fetchone()
    return found[0] if found else None


def newest_revision() -> str | None:
    """Return the schema revision of the installed MLflow."""
    return _revision_of_template(template_path(LIBRARY)) or scripts_of(LOCATION).get_current_head()


def upgrade(database: Path, revision: str = "heads") -> None:
    """Migrate a store in one transaction.

    Args:
        database: SQLite file; it may be empty.
        revision: Revision of MLflow's schema.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: A migration failed; the store is unchanged.
    """
    from alembic.runtime.environment import EnvironmentContext
    from mlflow.store.db.base_sql_model import Base
    from mlflow.store.tracking.dbmodels import models  # noqa: F401  # registers the tables that migrations refer to
    from mlflow.store.tracking.dbmodels.initial_models import Base as InitialBase
    from sqlalchemy import NullPool, create_engine

    is_new = revision_of(database) is None
    scripts = scripts_of(LOCATION)
    # In autocommit mode neither Python nor Alembic begins a transaction within the transaction below.
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(database, timeout=BUSY_SECONDS, isolation_level=None),
        poolclass=NullPool,
    )
    environment = EnvironmentContext(_config(), scripts, fn=lambda former, _: scripts._upgrade_revs(revision, former))
    with engine.connect() as connection, environment:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        if is_new:
            InitialBase.metadata.create_all(connection)
        environment.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
        environment.run_migrations()
        connection.commit()


def _is_ready(database: Path) -> bool:
    ready = f"SELECT version_num FROM alembic_version, experiments WHERE experiment_id = {DEFAULT_EXPERIMENT}"
    with suppress(sqlite3.OperationalError), opened(database) as tables:  # no such table
        return tables.execute(ready).fetchall() == [(newest_revision(),)]
    return False


def _table_names(tables: sqlite3.Connection) -> set[str]:
    found = tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in found if not name.startswith("sqlite_")}


def _migrate(database: Path) -> None:
    from sqlalchemy.exc import SQLAlchemyError

    former = revision_of(database)
    if former is not None and former not in {script.revision for script in scripts_of(LOCATION).walk_revisions()}:
        raise TrackingError(
            f"The installed MLflow does not know schema {former} of the tracking store {database}: install "
            "the version that wrote it, or name another SHUNTER_HOME."
        )
    kept = database.with_name(f"{database.name}.before-{newest_revision()}")
    partial = kept.with_name(f"{kept.name}.partial")
    partial.unlink(missing_ok=True)  # may remain from a command that was killed
    begin_private(partial)
    copy_database(database, partial)
    partial.replace(kept)
    try:
        upgrade(database)
    except SQLAlchemyError as error:
        kept.unlink()
        raise TrackingError(
            f"The schema of the tracking store {database} cannot be migrated ({first_line(error)}); the "
            f"store is unchanged. Restore a backup, or move {database.name}* away to begin a new store."
        ) from error


@lru_cache
def _revision_of_template(template: Path) -> str | None:
    with suppress(sqlite3.Error):  # a damaged template is ignored
        return revision_of(template) if template.exists() else None
    return None


@lru_cache
def scripts_of(location: str) -> "ScriptDirectory":
    """Return the migrations of a package's folder, such as `mlflow:store/db_migrations`."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config(location))


def _config(location: str = LOCATION) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", location)
    return config
