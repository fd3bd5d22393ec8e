"""Past training runs, read from MLflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shunter.tracking.convention import RunKind
from shunter.tracking.store import EXPERIMENT, has_store, open_store, tracking_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun


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
        metrics: Last value of each metric.
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

    Args:
        kinds: Kinds of run.
        limit: Largest number of runs of each kind.

    Raises:
        TrackingError: the store cannot be read.
    """
    if not has_store():
        return []
    client = open_store().mlflow
    with tracking_errors():
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return []
        found = [run for kind in kinds for run in _newest(client, experiment.experiment_id, kind, limit)]
    return list(map(tracked_run, found))


def read_children(parent_run_id: str, kind: RunKind, *, limit: int = 1_000) -> list[TrackedRun]:
    """Return the child runs of one kind, newest first.

    Args:
        parent_run_id: Full id of the parent run.
        kind: Kind of the child runs.
        limit: Largest number of runs.

    Raises:
        TrackingError: the store cannot be read, or holds no such run.
    """
    client = open_store()
    parent_run_id = client.real_id(parent_run_id)
    with tracking_errors():
        experiment_id = client.mlflow.get_run(parent_run_id).info.experiment_id
        below = f"tags.mlflow.parentRunId = '{parent_run_id}'"
        return list(map(tracked_run, _newest(client.mlflow, experiment_id, kind, limit, also=below)))


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
        metrics=run.data.metrics,
        tags=run.data.tags,
    )


def _newest(
    client: "MlflowClient", experiment_id: str, kind: RunKind, limit: int, also: str | None = None
) -> list["MlflowRun"]:
    """Return up to `limit` runs of one kind, newest first, that meet the condition `also`, read page by page."""
    condition = f"tags.`run.kind` = '{kind}'" + (f" and {also}" if also else "")
    found: list[MlflowRun] = []
    token = None
    while len(found) < limit:
        page = client.search_runs(
            [experiment_id],
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
