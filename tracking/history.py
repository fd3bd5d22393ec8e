"""Past trainings, read back from MLflow."""

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
    """One run as the store holds it.

    Attributes:
        run_id: MLflow's id of the run.
        kind: `train`, `member`, `trial`, ...; empty when the run is not one of Shunter's.
        parent_run_id: Id of the run that it belongs to; None for a parent.
        status: `FINISHED`, `FAILED`, `KILLED`, `RUNNING`, ...
        started_at: Seconds since 1970.
        ended_at: Seconds since 1970; None while it runs.
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
    """Past runs kind by kind, newest first; none where there is no store yet.

    Args:
        kinds: Kinds of run.
        limit: Most runs of each kind.

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
    """The runs of one kind below a run, newest first.

    Args:
        parent_run_id: Full id of the parent.
        kind: Kind of the runs below.
        limit: Most runs.

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
    """The run without MLflow's own classes."""
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
    """Runs of one kind that meet a further condition, a page at a time."""
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
