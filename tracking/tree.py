"""Run with its children, curves and artifacts, read from the store for reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.tracking.convention import QUALITY_METRICS
from shunter.tracking.history import TrackedRun, tracked_run
from shunter.tracking.store import open_store, tracking_errors, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

CURVES = (
    *(QUALITY_METRICS[name] for name in ("ne", "logloss", "auc")),
    *("quality.ndcg20", "quality.recall20"),
    *("quality.train.logloss", "quality.train.bpr_loss", "energy.watts"),
)
LARGEST_ARTIFACT_BYTES = 8 << 20
Point = tuple[int, float]


@dataclass(frozen=True)
class RunTree:
    """Parent run with its children.

    Attributes:
        parent: Run of the flow.
        children: Runs of trials, members and ensemble, in the order of their start.
        curves: Points (step, value) by run id and metric name, in the order of the steps; only metrics of `CURVES`.
        artifacts: Text of the parent's small artifacts, by path.
    """

    parent: TrackedRun
    children: tuple[TrackedRun, ...]
    curves: Mapping[str, Mapping[str, tuple[Point, ...]]]
    artifacts: Mapping[str, str]

    def of_kind(self, *kinds: str) -> list[TrackedRun]:
        """Return the children of some kinds."""
        return [child for child in self.children if child.kind in kinds]


def read_tree(run_id: str) -> RunTree:
    """Read the tree of a run; for a child run (a trial or a member), the tree of its parent.

    Args:
        run_id: Full id of the run.

    Raises:
        TrackingError: the store cannot be read, or holds no such run.
    """
    store = open_store()
    client = store.mlflow
    with tracking_errors():
        run = client.get_run(store.real_id(run_id))
        above = run.data.tags.get("mlflow.parentRunId")
        if above:
            run = client.get_run(above)
        parent = tracked_run(run)
        found = client.search_runs(
            [run.info.experiment_id],
            f"tags.mlflow.parentRunId = '{parent.run_id}'",
            max_results=1_000,
            order_by=["attributes.start_time ASC"],
        )
        children = tuple(map(tracked_run, found))
        curves = {run.run_id: _curves(client, run) for run in (parent, *children)}
        texts = _texts(client, parent.run_id)
    return RunTree(parent, children, curves, texts)


def read_artifact(run_id: str, path: str) -> str | None:
    """Return the text of an artifact; None if the artifact does not exist.

    Raises:
        TrackingError: the store cannot be read.
    """
    client = open_store()
    folder = path.rpartition("/")[0]
    with tracking_errors():
        there = {file.path for file in client.list_artifacts(run_id, folder or None)}
        return _text(client.mlflow, client.real_id(run_id), path) if path in there else None


def _curves(client: "MlflowClient", run: TrackedRun) -> dict[str, tuple[Point, ...]]:
    curves = {}
    for name in CURVES:
        if name in run.metrics:
            points = client.get_metric_history(run.run_id, name)
            points = sorted(points, key=lambda point: (point.step, point.timestamp))
            curves[name] = tuple((point.step, point.value) for point in points)
    return curves


def _texts(client: "MlflowClient", run_id: str) -> dict[str, str]:
    """Return the small text artifacts by path: tables, configuration, notes and figures in SVG."""
    texts = {}
    for folder in (None, "config", "model_card"):
        for file in client.list_artifacts(run_id, folder):
            is_text = Path(file.path).suffix in {".json", ".md", ".txt", ".svg"}
            if is_text and not file.is_dir and (file.file_size or 0) <= LARGEST_ARTIFACT_BYTES:
                texts[file.path] = _text(client, run_id, file.path)
    return texts


def _text(client: "MlflowClient", run_id: str, path: str) -> str:
    """Return the text of an artifact, downloaded to a temporary folder, since the store may be on another machine."""
    import tempfile

    from mlflow.artifacts import download_artifacts

    location = client.get_run(run_id).info.artifact_uri
    with tempfile.TemporaryDirectory() as folder:
        found = download_artifacts(artifact_uri=f"{location}/{path}", dst_path=folder, tracking_uri=tracking_uri())
        return Path(found).read_text(encoding="utf-8", errors="replace")
