"""Removal of data that was not used for a long time: data sets, interrupted runs, rows of MLflow and Prefect.

Registered versions, the history of runs, and data that a younger interrupted run needs are never removed.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from shunter.checked_json import json_object, read_checked
from shunter.errors import DamagedFileError, ShunterError, first_line
from shunter.settings import Settings
from shunter.tasks.run_state import DATA, FINISHED, end_given_up, unfinished_runs
from shunter.tracking.leftovers import Leftover, on_disk
from shunter.tracking.retention import (
    LOCK_SECONDS,
    count_of_runs,
    shrink,
    unused_baselines,
    unused_datasets,
    unused_rows,
)

_OLD = "state_type IN ('COMPLETED', 'FAILED', 'CANCELLED', 'CRASHED') AND parent_task_run_id IS NULL AND end_time < ?"


def find_unused(min_age_seconds: float) -> list[Leftover]:
    """Return all unused data whose last use is at least `min_age_seconds` ago, the largest first.

    Raises:
        ShunterError: A database cannot be read.
    """
    runs = list(_given_up(min_age_seconds))
    gone = {run.name for run in runs}
    needed = [_data_of(run) for run in unfinished_runs() if str(run) not in gone]
    found = [*runs, *unused_datasets(min_age_seconds, needed), *unused_rows(min_age_seconds)]
    found += [*unused_baselines(min_age_seconds), *_flow_runs(min_age_seconds)]
    return sorted(found, key=lambda leftover: -leftover.size_bytes)


def _given_up(min_age_seconds: float) -> Iterator[Leftover]:
    """Yield interrupted runs that were not resumed, and folders of finished runs that a kill left behind."""
    finished = Settings().runs_directory.glob(f"*{FINISHED}")
    for folder in (*unfinished_runs(), *finished):
        lock = FileLock(folder.with_name(f"{folder.name.removesuffix(FINISHED)}.lock"), timeout=0)
        try:
            with lock:
                found = [*on_disk("interrupted run that was not resumed", folder, lock)]
        except Timeout:
            continue
        for one in found:
            if one.age_seconds >= min_age_seconds:
                yield replace(one, remove=partial(_give_up, folder, one.remove))


def _give_up(folder: Path, remove: Callable[[], None]) -> None:
    end_given_up(folder)
    remove()


def _data_of(run: Path) -> str:
    """Return the folder name of the data set that an interrupted run needs."""
    try:
        return read_checked(run / DATA, lambda text: str(json_object(text)["folder"]))
    except FileNotFoundError:
        return ""
    except DamagedFileError:
        return (run / DATA).read_text(errors="replace").strip()  # only the name, as a former version wrote it


def _flow_runs(min_age_seconds: float) -> Iterator[Leftover]:
    """Yield runs in Prefect's own database that ended before the age limit; MLflow keeps their results."""
    home = os.environ.get("PREFECT_HOME")  # not set in a flow of somebody else's
    database = Path(home or "") / "prefect.db"
    if not home or not database.is_file() or os.environ.get("PREFECT_API_DATABASE_CONNECTION_URL"):
        return
    before = datetime.now(UTC) - timedelta(seconds=min_age_seconds)
    ids = f"SELECT id FROM flow_run WHERE {_OLD}"
    with closing(sqlite3.connect(database, timeout=LOCK_SECONDS)) as tables:
        try:
            if not tables.execute("SELECT 1 FROM sqlite_master WHERE name = 'flow_run'").fetchone():
                return  # no flow has run yet
            moment = before.strftime("%Y-%m-%d %H:%M:%S.%f")  # Prefect's format
            count, oldest = tables.execute(
                f"SELECT count(*), min(end_time) FROM ({ids.replace('SELECT id', 'SELECT end_time')})", (moment,)
            ).fetchone()
            said = f"SELECT coalesce(sum(length(message)), 0) FROM log WHERE flow_run_id IN ({ids})"
            size = tables.execute(said, (moment,)).fetchone()[0]
        except sqlite3.OperationalError as error:
            raise _unreadable(database, error) from error
    if count:
        age_seconds = time.time() - datetime.fromisoformat(oldest).replace(tzinfo=UTC).timestamp()
        what = "flow runs that are over, with logs, in Prefect"
        remove = partial(_vacuum, database, min_age_seconds)
        yield Leftover(what, count_of_runs(count), age_seconds, int(size), remove)


def _unreadable(database: Path, error: Exception) -> ShunterError:
    return ShunterError(
        f"Prefect's database {database} cannot be tidied up ({first_line(error)}): try again when no "
        "process writes to the database."
    )


def _vacuum(database: Path, min_age_seconds: float) -> None:
    """Remove old flow runs by the service that Prefect's server runs once an hour under `shunter up`."""
    from prefect.server.database import provide_database_interface
    from prefect.server.services.db_vacuum import vacuum_old_flow_runs
    from prefect.settings import PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD, temporary_settings
    from sqlalchemy.exc import SQLAlchemyError

    period = timedelta(seconds=max(min_age_seconds, 3601.0))  # Prefect requires more than an hour
    with temporary_settings({PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD: period}):
        try:
            asyncio.run(vacuum_old_flow_runs(db=provide_database_interface()))
        except SQLAlchemyError as error:
            raise _unreadable(database, error) from error
    shrink(database)
