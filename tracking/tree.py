"""Tree of a run with its children, curves and artifacts, read from the store for reports."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from shunter.tracking.convention import QUALITY_METRICS, WATTS
from shunter.tracking.history import (
    MOST_CHILDREN,
    OF_PARENT,
    WITH_ID,
    TrackedRun,
    metric_value,
    select_runs,
    tracked_run,
)
from shunter.tracking.outbox import Outbox
from shunter.tracking.runs import DETAILS
from shunter.tracking.store import open_store, prepare_store, read_store, tracking_errors, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

CURVES = (
    *(QUALITY_METRICS[name] for name in ("ne", "logloss", "auc")),
    *("quality.relative_loss", "quality.rmse", "quality.mae"),
    *("quality.ndcg20", "quality.recall20"),
    *("quality.train.logloss", "quality.train.bpr_loss", "energy.watts", WATTS),
)
LARGEST_ARTIFACT_BYTES = 8 << 20
FOLDERS = ("", "config", "model_card", DETAILS)  # folders of a run's artifacts that are read
TEXTS = frozenset((".json", ".md", ".txt", ".svg"))
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
        """Return the children of the given kinds."""
        return [child for child in self.children if child.kind in kinds]


def read_tree(run_id: str) -> RunTree:
    """Read the tree of a run; for a child run (a trial or a member), the tree of its parent.

    Raises:
        TrackingError: the store cannot be read, or has no such run.
    """
    prepare_store()  # updates the paths of artifacts after a move of the store
    run_id = Outbox(tracking_uri()).real_id(run_id)

    def of_tables(tables: sqlite3.Connection) -> RunTree:
        found = select_runs(tables, WITH_ID, (run_id,))
        if found and found[0].parent_run_id:
            found = select_runs(tables, WITH_ID, (found[0].parent_run_id,))
        folder = _folder(tables, found[0].run_id) if found else None
        if folder is None:
            return _tree_of_mlflow(run_id)
        children = tuple(select_runs(tables, OF_PARENT, (found[0].run_id,), limit=MOST_CHILDREN, oldest_first=True))
        query = "SELECT step, value, is_nan FROM metrics WHERE run_uuid = ? AND key = ? ORDER BY step, timestamp"
        curves: dict[str, dict[str, tuple[Point, ...]]] = {}
        for run in (found[0], *children):
            rows = {name: tables.execute(query, (run.run_id, name)) for name in CURVES if name in run.metrics}
            curves[run.run_id] = {
                name: tuple((row["step"], metric_value(row)) for row in of_name) for name, of_name in rows.items()
            }
        files = [file for part in FOLDERS for file in sorted((folder / part).glob("*")) if file.suffix in TEXTS]
        texts = {
            file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8", errors="replace")
            for file in files
            if file.is_file() and file.stat().st_size <= LARGEST_ARTIFACT_BYTES
        }
        return _tree(found[0], children, curves, texts)

    return read_store(of_tables, lambda: _tree_of_mlflow(run_id))


def _tree_of_mlflow(run_id: str) -> RunTree:
    client = open_store().mlflow
    run = client.get_run(run_id)
    above = run.data.tags.get("mlflow.parentRunId")
    if above:
        run = client.get_run(above)
    parent = tracked_run(run)
    found = client.search_runs(
        [run.info.experiment_id],
        f"tags.mlflow.parentRunId = '{parent.run_id}'",
        max_results=MOST_CHILDREN,
        order_by=["attributes.start_time ASC"],
    )
    children = tuple(map(tracked_run, found))
    curves = {run.run_id: _curves(client, run) for run in (parent, *children)}
    return _tree(parent, children, curves, _texts(client, parent.run_id))


def _tree(
    parent: TrackedRun,
    children: tuple[TrackedRun, ...],
    curves: Mapping[str, Mapping[str, tuple[Point, ...]]],
    artifacts: dict[str, str],
) -> RunTree:
    """Return the tree; figures of the details artifacts are returned as metrics of the parent run."""
    details = [artifacts.pop(path) for path in list(artifacts) if path.startswith(f"{DETAILS}/")]
    figures: dict[str, float] = {}
    for text in details:
        with suppress(ValueError):  # a damaged artifact
            figures |= json.loads(text)
    return RunTree(replace(parent, metrics={**parent.metrics, **figures}), children, curves, artifacts)


def read_artifact(run_id: str, path: str) -> str | None:
    """Return the text of an artifact; None if the artifact does not exist.

    Raises:
        TrackingError: the store cannot be read.
    """
    prepare_store()
    real_id = Outbox(tracking_uri()).real_id(run_id)
    if (found := read_store(lambda tables: _folder(tables, real_id), lambda: None)) is not None:
        file = found / path
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None
    client = open_store()
    folder = path.rpartition("/")[0]
    with tracking_errors():
        there = {file.path for file in client.list_artifacts(run_id, folder or None)}
        return _text(client.mlflow, client.real_id(run_id), path) if path in there else None


def _folder(tables: sqlite3.Connection, run_id: str) -> Path | None:
    """Return the folder of a run's artifacts; None if the folder is not on this machine."""
    row = tables.execute(f"SELECT artifact_uri FROM runs WHERE {WITH_ID}", (run_id,)).fetchone()
    address = urlparse(row["artifact_uri"] or "mlflow-artifacts:") if row is not None else None
    return Path(unquote(address.path)) if address is not None and address.scheme in {"", "file"} else None


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
    for folder in FOLDERS:
        for file in client.list_artifacts(run_id, folder or None):
            is_text = Path(file.path).suffix in TEXTS
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
