"""The runs of a past training as MLflow holds them: recorded, put into a new store, and read there."""

import json
import re
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag

from shunter.extensions.meta_learning.past import evaluated_runs, nearest_studies
from shunter.planner.history import read_history
from shunter.reporting.page.publish import build_report
from shunter.tracking.history import read_children
from shunter.tracking.listing import list_trainings
from shunter.tracking.store import artifact_root, tracking_uri
from shunter.tracking.tree import read_tree
from tests.golden.flow_runs import children_of
from tests.golden.homes import at_home
from tests.golden.recorded import RECORDED, read, write

FILE = "mlflow_run.json"
READ = "mlflow_run_read.json"
ARTIFACTS = ("decision.json", "features.json", "config/request.json", "config/profiles.json")
# What was known of a past run before there was a record of evidence.
FIELDS = {
    "kind",
    "ended_at",
    "data",
    "family",
    "placement",
    "auc",
    "seconds",
    "joules",
    "cost",
    "work_share",
    "was_cut",
}
BEGAN = 1_700_000_000_000  # milliseconds since 1970, as if all had happened then
STAMP = "2023-11-14T22:13:20+00:00"


def write_past(client: MlflowClient, run_id: str, folder: Path) -> None:
    """Record the runs of a training, and what is read of them."""
    parent = client.get_run(run_id)
    runs = [parent, *children_of(client, run_id)]
    experiment = client.get_experiment(parent.info.experiment_id).name
    texts = {path: _artifact(client, run_id, path, folder) for path in ARTIFACTS}
    models = [one["accelerator"]["model"] for one in json.loads(texts["config/profiles.json"])]
    texts = {path: _without_place(text, models) for path, text in texts.items()}
    exported = [_exported(client, run, parent, models) for run in runs]
    write(FILE, {"experiment": experiment, "runs": exported, "artifacts": texts})
    write(READ, read_in_new_store(folder))


def read_in_new_store(folder: Path) -> dict[str, Any]:
    """Put the recorded runs into a store of their own, and read them in every way that past runs are read in."""
    with at_home(folder / "home"):
        run_id = _put_back(read(FILE))
        return {
            "history": _history(),
            "list": _listed(),
            "tree": _tree(run_id),
            "studies": _studies(),
            "trials": len(read_children(run_id, "trial")),
            "report": [words for words in ("AUC", "member-0", "trial") if words in build_report(run_id)],
        }


def _exported(client: MlflowClient, run: Run, parent: Run, models: list[str]) -> dict[str, Any]:
    tags = {name: value for name, value in run.data.tags.items() if not name.startswith(("mlflow.", "prefect."))}
    names = [name for name in sorted(run.data.metrics) if not name.startswith("system/")]
    points = {name: client.get_metric_history(run.info.run_id, name) for name in names}
    assert run.info.end_time is not None
    return {
        "name": run.info.run_name,
        "status": run.info.status,
        "is_child": run.info.run_id != parent.info.run_id,
        "began_after": run.info.start_time - parent.info.start_time,
        "ended_after": run.info.end_time - parent.info.start_time,
        "params": dict(run.data.params),
        "metrics": {name: [[point.step, point.value] for point in found] for name, found in points.items()},
        "tags": {name: _without_place(value, models) for name, value in tags.items()},
    }


def _without_place(text: str, models: list[str]) -> str:
    """Without the names of the machine and its processors, and with the time as if it had been long ago."""
    for model in models:
        text = text.replace(model, "a processor")
    text = re.sub(r'("host": ?)"[^"]*"', r'\1"host-1"', text)
    return re.sub(r'("measured_at": ?)"[^"]*"', rf'\1"{STAMP}"', text)


def _artifact(client: MlflowClient, run_id: str, path: str, folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return Path(client.download_artifacts(run_id, path, str(folder))).read_text()


def _put_back(recorded: dict[str, Any]) -> str:
    client = MlflowClient(tracking_uri())
    experiment = client.create_experiment(recorded["experiment"], artifact_location=artifact_root())
    parent = ""
    for run in recorded["runs"]:
        tags = {**run["tags"], **({"mlflow.parentRunId": parent} if run["is_child"] else {})}
        created = client.create_run(experiment, BEGAN + run["began_after"], tags, run["name"]).info.run_id
        client.log_batch(
            created,
            [Metric(name, value, BEGAN, step) for name, points in run["metrics"].items() for step, value in points],
            [Param(name, value) for name, value in run["params"].items()],
            [RunTag("test.put_back", "true")],
        )
        client.set_terminated(created, run["status"], BEGAN + run["ended_after"])
        parent = parent or created
    for path, text in recorded["artifacts"].items():
        client.log_text(parent, text, path)
    return parent


def _history() -> dict[str, Any]:
    history = read_history()
    runs = [run.model_dump(mode="json", include=FIELDS) for run in history.runs]
    step_times = [[step.predicted_seconds, step.measured_seconds] for step in history.steps]
    train = next(run for run in history.runs if run.kind == "train")
    quality = history.quality(0.65, data=train.data, family=train.family or "")
    shares = history.work_shares([64], data=train.data, family=train.family or "")
    return {
        "runs": sorted(runs, key=json.dumps),
        "steps_of_runs": sorted(len(run.steps) for run in history.runs),
        "steps": sorted(step_times),
        "excluded": len(history.excluded),
        "knows_quality": quality is not None,
        "knows_work_shares": shares is not None,
    }


def _listed() -> dict[str, Any]:
    rows = list_trainings()
    return {"rows": [{name: row[name] for name in row if name not in ("run_id", "started")} for row in rows]}


def _tree(run_id: str) -> dict[str, Any]:
    tree = read_tree(run_id)
    curves = {run.tags["run.kind"]: sorted(tree.curves[run.run_id]) for run in (tree.parent, *tree.children)}
    return {"kinds": [child.kind for child in tree.children], "curves": curves, "artifacts": sorted(tree.artifacts)}


def _studies() -> list[dict[str, Any]]:
    features = {
        name.removeprefix("meta."): points[-1][1]
        for name, points in read(FILE)["runs"][0]["metrics"].items()
        if name.startswith("meta.")
    }
    return [
        {"name": study.name, "distance": study.distance, "trials": [parameters for parameters, _ in study.with_result]}
        for study in nearest_studies(features, evaluated_runs(None))
    ]


def recorded_bytes() -> int:
    """Size of all that is recorded."""
    return sum(path.stat().st_size for path in RECORDED.rglob("*") if path.is_file())
