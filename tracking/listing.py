"""Short lists of past training runs and registered models, for commands that must answer at once."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.tracking.store import (
    OF_EXPERIMENTS,
    experiment_ids,
    has_store,
    newest_runs,
    open_store,
    open_tables,
    read_store,
    store_file,
)

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun

# Column of the list -> kind of entry, its name, and its former name. The names are copied from
# `shunter.tracking.convention`, because importing that module takes seconds.
COLUMNS: dict[str, tuple[str, ...]] = {
    "data": ("params", "data.name"),
    "model": ("params", "request.model"),
    "objective": ("params", "request.objective"),
    "placement": ("params", "placement.label"),
    "accelerator": ("params", "placement.accelerator"),
    "test_auc": ("metrics", "quality/auc", "quality.test.auc"),
    "test_ne": ("metrics", "quality/ne", "quality.test.ne"),
    "test_rmse": ("metrics", "quality/rmse"),
    "test_mae": ("metrics", "quality/mae"),
    "validation_auc": ("metrics", "quality/validation_auc", "quality.auc"),
    "validation_ne": ("metrics", "quality/validation_ne", "quality.ne"),
    "total_seconds": ("metrics", "time/total_seconds", "time.total_seconds"),
    "energy_joules": ("metrics", "energy/kilojoules", "energy.joules"),
    "energy_source": ("tags", "energy.source"),
    "registered": ("tags", "model.registered"),
}
# Columns of the list of model versions: entries of the run that produced the version.
VERSION_COLUMNS = {
    **{name: COLUMNS[name] for name in ("data", "model", "test_auc", "test_ne", "test_rmse", "test_mae")},
    **{name: COLUMNS[name] for name in ("total_seconds", "energy_joules")},
    "test_ndcg20": ("metrics", "quality/ndcg20", "quality.test.ndcg20"),
    "energy_source": COLUMNS["energy_source"],
    "families": ("tags", "model.families"),
    "compression": ("tags", "compression.by"),
}
_PENDING = 1  # `LOGGED_MODEL_PENDING` of MLflow's protocol
_TABLES = {"params": "params", "metrics": "latest_metrics", "tags": "tags"}

Row = dict[str, Any]


def list_trainings(limit: int = 20) -> list[Row]:
    """Return past training runs, newest first; figures that a run did not record are None.

    Returns:
        One row per run with `run_id`, `started` (seconds since 1970), `status`, the names in `COLUMNS`, and
        `auc_per_kilojoule`, see `auc_gain_per_kilojoule`.

    Raises:
        TrackingError: the store cannot be read.
    """
    found = _listed(lambda tables: _trainings_of(tables, limit), lambda: _trainings_of_mlflow(limit))
    return [
        {**row, "auc_per_kilojoule": auc_gain_per_kilojoule(row["test_auc"], row["energy_joules"])} for row in found
    ]


def auc_gain_per_kilojoule(auc: float | None, joules: float | None) -> float | None:
    """Return the test AUC above 0.5 per kilojoule of the whole command; None if unknown."""
    return None if auc is None or not joules else (auc - 0.5) / (joules / 1e3)


def list_versions() -> list[Row]:
    """Return the versions of registered models by name, newest version first.

    Returns:
        One row per version with `name`, `version`, `aliases`, `registered_at` (seconds since 1970), `run_id`, and the
        names in `VERSION_COLUMNS`, None for unknown values. `model` is the version's families with its compression, or
        the requested family for a version that an earlier release registered.

    Raises:
        TrackingError: the store cannot be read.
    """
    rows = _listed(_versions_of, _versions_of_mlflow)
    for row in rows:
        compression, families = row.pop("compression"), row.pop("families")
        if families is not None:
            row["model"] = families if compression in {None, "none"} else f"{families}, {compression}"
    return rows


def list_pending_models() -> list[Row]:
    """Return the logged models whose registration was not completed.

    Returns:
        One row per model with `model_id`, `location` (address of its artifacts) and `written` (seconds since 1970).

    Raises:
        TrackingError: the store cannot be read.
    """

    def pending_of(tables: sqlite3.Connection) -> list[Row]:
        models = tables.execute(
            "SELECT model_id, artifact_location, last_updated_timestamp_ms FROM logged_models"
            f" WHERE {OF_EXPERIMENTS} AND status = ? AND lifecycle_stage = 'active'",
            (_PENDING,),
        )
        return [{"model_id": row[0], "location": row[1], "written": row[2] / 1000} for row in models]

    return _listed(pending_of, _pending_of_mlflow)


def find_version(name: str, version: int | None, alias: str) -> tuple[int, Path] | None:
    """Return number and folder of a registered version whose files are on this machine.

    Args:
        name: Name of the registered model.
        version: Number of the version; None for the version with the alias.
        alias: Alias of the version.

    Returns:
        Number and folder. None if the store is not a SQLite file, has no such version, or the files are not on this
        machine; MLflow's client then finds the version or raises the error.
    """
    file = store_file() if has_store() else None
    if file is None:
        return None
    with contextlib.suppress(sqlite3.OperationalError), open_tables(file) as tables:
        numbered = "SELECT version FROM registered_model_aliases WHERE name = ? AND alias = ?"
        row = tables.execute(
            "SELECT version, coalesce(storage_location, source) AS location FROM model_versions"
            f" WHERE name = ? AND current_stage <> 'Deleted_Internal' AND version = coalesce(?, ({numbered}))",
            (name, version, name, alias),
        ).fetchone()
        if row is not None and Path(row["location"]).is_dir():
            return int(row["version"]), Path(row["location"])
    return None


def _listed(of_tables: Callable[[sqlite3.Connection], list[Row]], of_mlflow: Callable[[], list[Row]]) -> list[Row]:
    return read_store(of_tables, of_mlflow) if has_store() else []


def _trainings_of(tables: sqlite3.Connection, limit: int) -> list[Row]:
    runs = tables.execute(
        f"SELECT run_uuid, start_time, status FROM runs WHERE {OF_EXPERIMENTS} AND lifecycle_stage = 'active'"
        " AND run_uuid IN (SELECT run_uuid FROM tags WHERE key = 'run.kind' AND value = 'train')"
        " ORDER BY start_time DESC, run_uuid LIMIT ?",
        (limit,),
    ).fetchall()
    return [
        {
            "run_id": run["run_uuid"],
            "started": run["start_time"] / 1000,
            "status": run["status"],
            **_entries(tables, run["run_uuid"], COLUMNS),
        }
        for run in runs
    ]


def _versions_of(tables: sqlite3.Connection) -> list[Row]:
    aliases: dict[tuple[str, int], list[str]] = {}
    for row in tables.execute("SELECT name, version, alias FROM registered_model_aliases ORDER BY alias"):
        aliases.setdefault((row["name"], int(row["version"])), []).append(row["alias"])
    versions = tables.execute(
        "SELECT name, version, creation_time, run_id FROM model_versions"
        " WHERE current_stage <> 'Deleted_Internal' ORDER BY name, version DESC"
    ).fetchall()
    return [
        {
            "name": row["name"],
            "version": int(row["version"]),
            "aliases": aliases.get((row["name"], int(row["version"])), []),
            "registered_at": row["creation_time"] / 1000,
            "run_id": row["run_id"] or None,
            **_entries(tables, row["run_id"], VERSION_COLUMNS),
        }
        for row in versions
    ]


def _pending_of_mlflow() -> list[Row]:
    client = open_store().mlflow
    experiments = experiment_ids(client)
    if not experiments:
        return []
    found = _pages(lambda page_token: client.search_logged_models(experiments, page_token=page_token))
    return [
        {
            "model_id": model.model_id,
            "location": model.artifact_location,
            "written": model.last_updated_timestamp / 1000,
        }
        for model in found
        if model.status == "PENDING"
    ]


def _entries(tables: sqlite3.Connection, run_id: str | None, columns: Mapping[str, tuple[str, ...]]) -> Row:
    found: dict[tuple[str, str], Any] = {}
    for kind, table in _TABLES.items():
        where = " AND NOT is_nan" if kind == "metrics" else ""
        rows = tables.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ?{where}", (run_id,))
        found |= {(kind, row["key"]): row["value"] for row in rows}
    return _row_of(columns, found.get)


def _row_of(columns: Mapping[str, tuple[str, ...]], value_of: Callable[[tuple[str, str]], Any]) -> Row:
    """Return a row of the list: for each column the value under the first name that has one, else None."""
    row: Row = {}
    for column, (kind, *names) in columns.items():
        found = ((name, value_of((kind, name))) for name in names)
        name, row[column] = next(((name, value) for name, value in found if value is not None), ("", None))
        if name == "energy/kilojoules":
            row[column] *= 1e3
    return row


def _trainings_of_mlflow(limit: int) -> list[Row]:
    client = open_store().mlflow
    runs = newest_runs(client, experiment_ids(client), "tags.`run.kind` = 'train'", limit)
    return [
        {
            "run_id": run.info.run_id,
            "started": run.info.start_time / 1000,
            "status": run.info.status,
            **_entries_of_mlflow(run, COLUMNS),
        }
        for run in runs
    ]


def _versions_of_mlflow() -> list[Row]:
    from mlflow.exceptions import MlflowException

    client = open_store().mlflow
    rows: list[Row] = []
    for model in sorted(_pages(client.search_registered_models), key=lambda model: model.name):
        versions = _pages(
            lambda page_token, name=model.name: client.search_model_versions(f"name = '{name}'", page_token=page_token)
        )
        for version in sorted(versions, key=lambda version: -int(version.version)):
            run = None
            with contextlib.suppress(MlflowException):  # the run was deleted
                run = client.get_run(version.run_id) if version.run_id else None
            number = int(version.version)
            rows.append(
                {
                    "name": model.name,
                    "version": number,
                    "aliases": sorted(alias for alias, of in model.aliases.items() if int(of) == number),
                    "registered_at": (version.creation_timestamp or 0) / 1000,
                    "run_id": version.run_id or None,
                    **_entries_of_mlflow(run, VERSION_COLUMNS),
                }
            )
    return rows


def _pages(search: Callable[..., Any]) -> Iterable[Any]:
    token = None
    while True:
        page = search(page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _entries_of_mlflow(run: "MlflowRun | None", columns: Mapping[str, tuple[str, ...]]) -> Row:
    if run is None:
        return dict.fromkeys(columns)
    data = run.data

    def value_of(place: tuple[str, str]) -> Any:
        value = getattr(data, place[0]).get(place[1])
        return None if value != value else value  # noqa: PLR0124 - NaN

    return _row_of(columns, value_of)
