"""Cleanup of data that was not used for long: cached data sets, operation counts, and rows of MLflow's database.

The history of runs is never removed, since the planner learns from every run. Unused data sets are removed and ingested
again on request. Runs that a user deleted in MLflow are removed too. Samples of CPU and memory use of old runs are also
removed, since the samples are most of the rows and of no use long after a run. A store on a server is not cleaned.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from shunter.errors import TrackingError
from shunter.python_processes import run_python
from shunter.settings import Settings
from shunter.tracking.leftovers import Leftover, on_disk, size_of
from shunter.tracking.store import artifact_root, is_file_store, tracking_errors, tracking_uri

UNUSED_DAYS = 90.0
LOCK_SECONDS = 30.0  # time to wait for a locked database
_OLD_RUNS = "SELECT run_uuid FROM runs WHERE status != 'RUNNING' AND end_time < ?"
_SAMPLES = f"FROM metrics WHERE key LIKE 'system/%' AND run_uuid IN ({_OLD_RUNS})"
_DELETED = (
    "SELECT run_uuid FROM runs WHERE lifecycle_stage = 'deleted' AND deleted_time < ?"
    " AND run_uuid NOT IN (SELECT run_id FROM model_versions WHERE run_id IS NOT NULL)"
)


def unused_datasets(min_age_seconds: float, needed: Sequence[str] = ()) -> Iterator[Leftover]:
    """Yield data sets of the cache that no command has used for `min_age_seconds`."""
    cache = Settings().cache_directory
    for description in sorted(cache.glob("*/dataset.json")):
        folder = description.parent
        lock = FileLock(cache / "locks" / f"{folder.name}.lock", timeout=0)
        try:
            with lock:
                found = [*on_disk("unused data set", folder, lock)]
        except Timeout:
            continue
        if folder.name not in needed:
            yield from (one for one in found if one.age_seconds >= min_age_seconds)


def unused_baselines(min_age_seconds: float) -> Iterator[Leftover]:
    """Yield unused baselines, features of data sets, data frames and operation counts; all are made again on demand."""
    kinds = {
        "unused count of a step": Settings().traces_directory,
        "unused baseline": Settings().baselines_directory,
        "unused features of data": Settings().data_features_directory,
        "unused frame": Settings().frames_directory,
    }
    for what, directory in kinds.items():
        # Temporary files of processes that write counts are there too; `find_leftovers` lists those that a kill left.
        pattern = "*.json" if directory == Settings().traces_directory else "*"
        found = [leftover for path in sorted(directory.glob(pattern)) for leftover in on_disk(what, path)]
        yield from (one for one in found if one.age_seconds >= min_age_seconds)


def unused_rows(min_age_seconds: float) -> Iterator[Leftover]:
    """Yield the system samples of old runs, and runs deleted in MLflow, if the store is the home's SQLite file.

    Raises:
        TrackingError: The store cannot be read.
    """
    database = Path(artifact_root()).with_name("mlflow.db")
    if not is_file_store() or not database.exists():
        return
    before = int((time.time() - min_age_seconds) * 1000)
    with tracking_errors(), closing(_opened(database)) as tables:
        try:
            rows, size, oldest = tables.execute(
                f"SELECT count(*), sum(length(key) + length(run_uuid) + 32), min(timestamp) {_SAMPLES}", (before,)
            ).fetchone()
            deleted = [run for (run,) in tables.execute(_DELETED, (before,))]
            first = tables.execute(f"SELECT min(deleted_time) FROM runs WHERE run_uuid IN ({_DELETED})", (before,))
            deleted_since = first.fetchone()[0]
        except sqlite3.OperationalError as error:
            raise TrackingError(
                f"The tables of the database {database} cannot be read ({error}): run `shunter clean` "
                "again when no program writes to it."
            ) from error
    if rows:
        yield Leftover(
            "samples of the machine's use, in MLflow",
            f"{rows:,} rows of runs that are over",
            time.time() - oldest / 1000,
            int(size),
            partial(_remove_samples, database, before),
        )
    if deleted:
        folders = [folder for run in deleted for folder in Path(artifact_root()).glob(run)]
        yield Leftover(
            "runs that were deleted in MLflow",
            count_of_runs(len(deleted)),
            time.time() - deleted_since / 1000,
            sum(map(size_of, folders)),
            partial(_remove_runs, deleted),
        )


def count_of_runs(count: int) -> str:
    """Return a number of runs as text."""
    return "1 run" if count == 1 else f"{count:,} runs"


def shrink(database: Path) -> None:
    """Free the disk space of removed rows; a database in use is left unchanged."""
    try:
        with closing(_opened(database)) as tables:
            tables.execute("VACUUM")
    except sqlite3.OperationalError:
        return


def _opened(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(database, timeout=LOCK_SECONDS)


def _remove_samples(database: Path, before: int) -> None:
    with closing(_opened(database)) as tables, tables:
        tables.execute(f"DELETE {_SAMPLES}", (before,))
    shrink(database)


def _remove_runs(runs: Sequence[str]) -> None:
    """Remove runs that were deleted in MLflow, with all their data, by `mlflow gc`."""
    store = ("--backend-store-uri", tracking_uri(), "--tracking-uri", tracking_uri())
    command = ["-m", "mlflow", "gc", *store, "--run-ids", ",".join(runs)]
    done = run_python(*command)
    if done.returncode:
        raise TrackingError(
            f"MLflow did not remove {len(runs)} deleted runs ({done.stderr.strip()[-200:]}): run `mlflow gc` by hand."
        )
