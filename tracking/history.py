"""Past training runs, read from MLflow."""

import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shunter.tracking.convention import RunKind, figures_of
from shunter.tracking.outbox import Outbox
from shunter.tracking.store import (
    OF_EXPERIMENTS,
    experiment_ids,
    has_store,
    newest_runs,
    open_store,
    read_store,
    tracking_uri,
)

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun

# Conditions on the table `runs` of a SQLite store.
HAS_KIND = "run_uuid IN (SELECT run_uuid FROM tags WHERE key = 'run.kind' AND value = ?)"
WITH_ID = "run_uuid = ?"
OF_PARENT = "run_uuid IN (SELECT run_uuid FROM tags WHERE key = 'mlflow.parentRunId' AND value = ?)"
MOST_CHILDREN = 1_000
MOST_IDS = 500  # largest number of run ids in one query


@dataclass(frozen=True)
class TrackedRun:
    """Run as stored in the tracking store.

    Attributes:
        run_id: MLflow's id of the run.
        kind: `train`, `member`, `trial`, ...; empty for a run that Shunter did not write.
        parent_run_id: Id of the parent run; None for a run without a parent.
        status: `FINISHED`, `FAILED`, `KILLED`, `RUNNING`, ...
        started_at: Start in seconds since 1970.
        ended_at: End in seconds since 1970; None for a running run.
        params: Parameters, as text.
        metrics: Last value of each metric, and further figures, see `shunter.tracking.convention.figures_of`.
        tags: Tags, as text.
    """

    run_id: str
    kind: str
    parent_run_id: str | None
    status: str
    started_at: float
    ended_at: float | None
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]


def read_runs(kinds: Sequence[RunKind] = ("train", "member"), *, limit: int = 1_000) -> list[TrackedRun]:
    """Return past runs kind by kind, newest first; empty if no store exists yet.

    Raises:
        TrackingError: the store cannot be read.
    """
    if not has_store():
        return []

    def of_tables(tables: sqlite3.Connection) -> list[TrackedRun]:
        condition = f"{OF_EXPERIMENTS} AND {HAS_KIND}"
        return [run for kind in kinds for run in select_runs(tables, condition, (kind,), limit=limit)]

    def of_mlflow() -> list[TrackedRun]:
        client = open_store().mlflow
        experiments = experiment_ids(client)
        conditions = [f"tags.`run.kind` = '{kind}'" for kind in kinds]
        return [tracked_run(run) for one in conditions for run in newest_runs(client, experiments, one, limit)]

    return read_store(of_tables, of_mlflow)


def read_children(parent_run_id: str, kind: RunKind) -> list[TrackedRun]:
    """Return the child runs of one kind, newest first, at most `MOST_CHILDREN`.

    Raises:
        TrackingError: the store cannot be read, or has no such run.
    """
    parent_run_id = Outbox(tracking_uri()).real_id(parent_run_id)

    def of_tables(tables: sqlite3.Connection) -> list[TrackedRun]:
        if not select_runs(tables, WITH_ID, (parent_run_id,)):
            return of_mlflow()  # raises the error
        return select_runs(tables, f"{OF_PARENT} AND {HAS_KIND}", (parent_run_id, kind), limit=MOST_CHILDREN)

    def of_mlflow() -> list[TrackedRun]:
        client = open_store().mlflow
        experiment_id = client.get_run(parent_run_id).info.experiment_id
        condition = f"tags.`run.kind` = '{kind}' and tags.mlflow.parentRunId = '{parent_run_id}'"
        return list(map(tracked_run, newest_runs(client, [experiment_id], condition, MOST_CHILDREN)))

    return read_store(of_tables, of_mlflow)


def select_runs(
    tables: sqlite3.Connection, where: str, values: Sequence[str], *, limit: int = -1, oldest_first: bool = False
) -> list[TrackedRun]:
    """Return the runs that meet a condition, without deleted runs, from the tables of a SQLite store.

    Args:
        tables: Open store.
        where: Condition on the columns of the table `runs`.
        values: Values of the condition.
        limit: Largest number of runs; -1 for all.
        oldest_first: Whether the oldest run is first; otherwise the newest run is first.
    """
    order = "ASC" if oldest_first else "DESC"
    rows = tables.execute(
        f"SELECT run_uuid, status, start_time, end_time FROM runs WHERE lifecycle_stage = 'active' AND {where}"
        f" ORDER BY start_time {order}, run_uuid LIMIT ?",
        (*values, limit),
    ).fetchall()
    ids = [row["run_uuid"] for row in rows]
    params, tags = (_entries(tables, table, ids) for table in ("params", "tags"))
    metrics = _entries(tables, "latest_metrics", ids, also=", is_nan")
    return [
        TrackedRun(
            run_id=run_id,
            kind=tags[run_id].get("run.kind", ""),
            parent_run_id=tags[run_id].get("mlflow.parentRunId"),
            status=row["status"],
            started_at=row["start_time"] / 1000,
            ended_at=None if row["end_time"] is None else row["end_time"] / 1000,
            params=params[run_id],
            metrics=figures_of(params[run_id], metrics[run_id], tags[run_id]),
            tags=tags[run_id],
        )
        for run_id, row in zip(ids, rows, strict=True)
    ]


def metric_value(row: sqlite3.Row) -> float:
    """Return the metric value of a table row, which marks NaN in a separate column."""
    return math.nan if row["is_nan"] else row["value"]


def _entries(tables: sqlite3.Connection, table: str, ids: Sequence[str], also: str = "") -> dict[str, dict[str, Any]]:
    """Return the values of a table of metrics, parameters or tags, by run id and name.

    `also` is SQL that selects the further columns of metrics.
    """
    found: dict[str, dict[str, Any]] = {run_id: {} for run_id in ids}
    for start in range(0, len(ids), MOST_IDS):
        some = ids[start : start + MOST_IDS]
        marks = ",".join("?" * len(some))
        for row in tables.execute(f"SELECT run_uuid, key, value{also} FROM {table} WHERE run_uuid IN ({marks})", some):
            found[row["run_uuid"]][row["key"]] = metric_value(row) if also else row["value"]
    return found


def tracked_run(run: "MlflowRun") -> TrackedRun:
    """Convert MLflow's run to a `TrackedRun`."""
    return TrackedRun(
        run_id=run.info.run_id,
        kind=run.data.tags.get("run.kind", ""),
        parent_run_id=run.data.tags.get("mlflow.parentRunId"),
        status=run.info.status,
        started_at=run.info.start_time / 1000,
        ended_at=None if run.info.end_time is None else run.info.end_time / 1000,
        params=run.data.params,
        metrics=figures_of(run.data.params, run.data.metrics, run.data.tags),
        tags=run.data.tags,
    )
