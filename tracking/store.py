"""Selection and opening of MLflow's tracking store."""

import contextlib
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from shunter.database import enable_wal
from shunter.errors import TrackingError, first_line
from shunter.files import begin_private, make_private
from shunter.python_processes import loading
from shunter.secrets import Address, without_secrets
from shunter.settings import settings
from shunter.tracking.client import TrackingClient
from shunter.tracking.outbox import Delivery, Outbox, StoreAwayError
from shunter.tracking.store_schema import ensure_schema

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

Found = TypeVar("Found")
EXPERIMENT = "shunter/train"
# Experiment of each kind of run; all other kinds are in `EXPERIMENT`, and child runs in their parent's experiment.
# MLflow's first page shows five experiments. Homes of earlier versions have runs of all kinds in `EXPERIMENT`.
EXPERIMENT_OF_KIND = {
    "nightly": "shunter/nightly",
    "rollback": "shunter/nightly",
    "select": "shunter/select",
    "profile": "shunter/select",
    "plan": "shunter/plan",
    "fleet": "shunter/fleet",
    "schedule": "shunter/fleet",
    "job": "shunter/fleet",
}
EXPERIMENTS = (EXPERIMENT, *dict.fromkeys(EXPERIMENT_OF_KIND.values()))
# Condition on the column `experiment_id` of a table of a SQLite store.
OF_EXPERIMENTS = f"experiment_id IN (SELECT experiment_id FROM experiments WHERE name IN {EXPERIMENTS})"
# MLflow opens an experiment with these tags on the table of runs, not on the traces of language models.
KIND = {"mlflow.experimentKind": "custom_model_development"}
SQLITE = "sqlite:///"
OPTIONAL_FOR_MLFLOW = ("pandas", "polars", "scipy")


def tracking_uri() -> str:
    """Return the full address of MLflow's store including secrets; in messages use `tracking_address`."""
    return tracking_address().secret


def tracking_address() -> Address:
    """Return the address of MLflow's store: the environment's `MLFLOW_TRACKING_URI`, else a SQLite file of the home.

    The path of a SQLite file is absolute, because the processes that open the file have different working folders.
    """
    given = os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{settings().tracking_root.resolve() / 'mlflow.db'}"
    path = given.removeprefix(SQLITE)
    return Address(given if path in (given, "", ":memory:") else f"{SQLITE}{Path(path).absolute()}")


def artifact_root() -> str:
    """Return the artifact folder of Shunter's own SQLite store; an MLflow server has its own artifact location."""
    return str(settings().tracking_root.resolve() / "artifacts")


def open_store() -> TrackingClient:
    """Return a client of the store; the first call creates the store.

    The client does not use MLflow's global state: every call has the id of its run, so that threads and tasks do not
    write to each other's runs.

    Raises:
        TrackingError: The store cannot be reached or created.
    """
    with loading("mlflow"), tracking_errors():
        prepare_store()
        return TrackingClient(tracking_uri(), experiment_id)


def import_mlflow_alone() -> None:
    """Load MLflow's client as in an installation without pandas, polars and scipy, which MLflow loads if it finds them.

    Importing these packages takes a fifth of the time of a command that changes one version. This is only for processes
    that end soon, because MLflow then does not accept pandas frames as data sets. If MLflow is already loaded, the
    function does nothing.
    """
    modules: dict[str, Any] = sys.modules
    if "mlflow" in modules:
        return
    absent = [name for name in OPTIONAL_FOR_MLFLOW if name not in modules]
    modules.update(dict.fromkeys(absent))  # an entry of None makes an import statement fail, as without the package
    try:
        with loading("mlflow"):
            import_module("mlflow")
    finally:
        for name in absent:
            del modules[name]


def prepare_store() -> None:
    """Create or migrate the schema of a SQLite store; in Shunter's own store also update moved artifact paths.

    Raises:
        TrackingError: The store cannot be written, or its schema cannot be migrated.
    """
    database, root = store_file(), Path(artifact_root())
    if database is None:
        return
    try:
        if is_file_store():
            make_private(settings().home)
            begin_private(database)
            enable_wal(database)
        database.parent.mkdir(parents=True, exist_ok=True)
        ensure_schema(database, str(root))
        if is_file_store():
            follow_move(database, root)
    except (sqlite3.Error, OSError) as error:
        raise failure(error) from error


def store_file() -> Path | None:
    """Return the file of a store in SQLite; None if the store is a server, another database or in memory."""
    if is_file_store():
        return Path(artifact_root()).with_name("mlflow.db")
    path = tracking_uri().removeprefix(SQLITE)
    return None if path == tracking_uri() or "?" in path or path == ":memory:" else Path(path)


def is_file_store() -> bool:
    """Return True if the store is Shunter's own SQLite file."""
    return not os.environ.get("MLFLOW_TRACKING_URI")


def has_store() -> bool:
    """Return True if a store exists; opening a missing store would create its file, which takes seconds."""
    return not is_file_store() or (settings().tracking_root / "mlflow.db").exists()


def experiment_ids(client: "MlflowClient") -> list[str]:
    """Return the ids of Shunter's existing experiments."""
    found = client.search_experiments(filter_string="name LIKE 'shunter/%'")
    return [experiment.experiment_id for experiment in found if experiment.name in EXPERIMENTS]


def newest_runs(client: "MlflowClient", experiments: list[str], condition: str, limit: int) -> "list[MlflowRun]":
    """Return up to `limit` runs that meet a condition of MLflow's search, newest first, read page by page."""
    found: list[MlflowRun] = []
    token = None
    while experiments and len(found) < limit:  # without experiments MLflow would search its default one
        page = client.search_runs(
            experiments,
            condition,
            max_results=min(limit - len(found), 1_000),
            order_by=["attributes.start_time DESC"],
            page_token=token,
        )
        found += page
        token = page.token
        if not token:
            break
    return found


def experiment_id(client: "MlflowClient", kind: str = "train") -> str:
    """Return the id of the experiment for runs of a kind; create the experiment if missing.

    Raises:
        TrackingError: the experiment was deleted in MLflow, or the store cannot be written.
    """
    from mlflow.exceptions import MlflowException

    name = EXPERIMENT_OF_KIND.get(kind, EXPERIMENT)
    with tracking_errors():
        found = client.get_experiment_by_name(name)
        if found is None:
            # A server has its own artifact location; a database alone would use a folder below the working folder.
            is_server = tracking_uri().startswith(("http:", "https:"))
            try:
                return client.create_experiment(
                    name,
                    artifact_location=None if is_server else artifact_root(),
                    tags=KIND,
                )
            except MlflowException:
                found = client.get_experiment_by_name(name)  # another process may have been faster
                if found is None:
                    raise
    if found.lifecycle_stage == "deleted":
        raise TrackingError(
            f"The experiment {name!r} was deleted in MLflow: restore it with "
            f"`mlflow experiments restore --experiment-id {found.experiment_id}`."
        )
    return found.experiment_id


@contextlib.contextmanager
def tracking_errors() -> Iterator[None]:
    """Convert errors of MLflow, its database and the file system, and invalid answers, to `TrackingError`."""
    try:
        yield
    except Exception as error:
        own = (OSError, StoreAwayError, json.JSONDecodeError, ModuleNotFoundError)  # the last: no database driver
        # Error classes of libraries that are not loaded are left out.
        foreign = (("mlflow.exceptions", "MlflowException"), ("sqlalchemy.exc", "SQLAlchemyError"))
        loaded = (getattr(sys.modules[module], name) for module, name in foreign if module in sys.modules)
        if isinstance(error, (*own, *loaded)):
            raise failure(error) from error
        raise


def failure(error: Exception) -> TrackingError:
    """Return the `TrackingError` for an error of the store, without secrets; connection errors get one short text."""
    reason = without_secrets(first_line(error))
    if re.search(r"Max retries exceeded|Connection refused|Connection error", reason):
        reason = "it does not answer"
    return TrackingError(
        f"The tracking store {tracking_address()} failed ({reason}): "
        "check that it can be reached and written, or name another with MLFLOW_TRACKING_URI."
    )


def deliver() -> Delivery:
    """Deliver the writes that were queued while the store was unreachable.

    Raises:
        TrackingError: the store cannot be opened.
    """
    client = open_store()
    with tracking_errors():
        return client.deliver()


def undelivered() -> int:
    """Return the number of writes queued for the store."""
    return Outbox(tracking_uri()).waiting()


# Columns with paths in MLflow 3.17; columns that another version lacks are skipped.
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def follow_move(database: Path, root: Path) -> bool:
    """Update the artifact paths of a moved or copied store; return True if the paths are updated."""
    if not database.exists() or not root.is_dir():
        return False
    with closing(sqlite3.connect(database)) as connection, connection:
        found = None
        with contextlib.suppress(sqlite3.Error):  # no tables yet, or locked: opening the store reports the error
            found = connection.execute(f"SELECT artifact_location FROM experiments WHERE {OF_EXPERIMENTS}").fetchone()
        former = found[0] if found else None
        if former is None or former == str(root) or not former.startswith("/"):
            return False
        for table, column in COLUMNS:
            if column in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column} || '/', 1, ?) = ?",
                    (str(root), len(former) + 1, len(former) + 1, f"{former}/"),
                )
    return True


def read_store(of_tables: Callable[[sqlite3.Connection], Found], of_mlflow: Callable[[], Found]) -> Found:
    """Read a SQLite store from its tables, and any other store with MLflow's client.

    The import of MLflow's client takes seconds, so the client is used only for stores on a server and for tables of
    another schema version.

    Raises:
        TrackingError: The store cannot be read.
    """
    if file := store_file():
        # The table does not exist: the schema is of another version.
        with contextlib.suppress(sqlite3.OperationalError), open_tables(file) as tables:
            return of_tables(tables)
    with tracking_errors():
        return of_mlflow()


@contextlib.contextmanager
def open_tables(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a SQLite store to read its tables.

    Raises:
        sqlite3.OperationalError: The store has no such file or table.
        TrackingError: The file is damaged.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as tables:
            tables.row_factory = sqlite3.Row
            yield tables
    except sqlite3.OperationalError:
        raise
    except sqlite3.Error as error:
        raise failure(error) from error
