"""Whole runs as MLflow holds them: the figures that follow from the request, the data and the placement alone."""

import json
import re
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from shunter.tracking.convention import figures_of
from shunter.tracking.runs import DETAILS
from tests.golden.flow_runs import children_of
from tests.golden.recorded import assert_near, is_rounded_alike, plain, read, record_case

FILE = "whole_runs.json"
FIGURES = re.compile(
    r"^(quality|ensemble|schedule|learning_rate|data|nightly)\.|^search\.(best_ne|noise|\w+_trials)$"
    r"|^training\.best_epoch$|^baseline\."
)
TEXTS = ("schedule.checks", "data.fingerprint")  # parameters that only look like numbers
MEASURED = re.compile(r"seconds|joules|bytes|watts|per_second")
# Relative. Between two processors of one kind figures in double precision differed by 2e-14, a single score by 3e-8.
LAST_BITS = 1e-7
PARAMS = ("model.", "placement.", "schedule.")


def whole_run(client: MlflowClient, run_id: str) -> dict[str, Any]:
    """Return what is compared of a run and of those below it, by their kinds and names."""
    parent = client.get_run(run_id)
    kind = parent.data.tags["run.kind"]
    children = children_of(client, run_id)
    return {
        kind: _compared(client, parent),
        **{f"{run.data.tags['run.kind']} {run.info.run_name}": _compared(client, run) for run in children},
    }


def _compared(client: MlflowClient, run: Run) -> dict[str, Any]:
    figures: dict[str, list[list[float]]] = {}
    for name, value in sorted(_figures_of(client, run).items()):
        if FIGURES.match(name) and not MEASURED.search(name) and name not in TEXTS:
            is_metric = name in run.data.metrics
            points = client.get_metric_history(run.info.run_id, name) if is_metric else []
            figures[name] = [[point.step, point.value] for point in points] or [[0, value]]
    return {
        "params": {name: value for name, value in run.data.params.items() if name.startswith(PARAMS)},
        "figures": figures,
    }


def _figures_of(client: MlflowClient, run: Run) -> dict[str, float]:
    """Return all figures of a run by the names of their first version: metrics, parameters and details."""
    found = {**figures_of(run.data.params, {}, {}), **run.data.metrics}
    for file in client.list_artifacts(run.info.run_id, DETAILS):
        found |= json.loads(Path(client.download_artifacts(run.info.run_id, file.path)).read_text())
    return found


def assert_run_as_recorded(case: str, client: MlflowClient, run_id: str) -> None:
    """Compare every figure of a run where the kind of processor and the placement are those of the recording.

    Processors of one kind still differ in the last bits of whole runs. On another kind other settings may win, so that
    only what is known of the data is compared.
    """
    found = plain(whole_run(client, run_id))
    if record_case(FILE, case, found):
        return
    expected = read(FILE)["cases"][case]
    kind = next(iter(found))
    if is_rounded_alike(FILE) and _placement(found[kind]) == _placement(expected[kind]):
        assert_near(found, expected, case, LAST_BITS)
    else:
        assert _of_data(found[kind]) == _of_data(expected[kind])


def _placement(run: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in run["params"].items() if name.startswith("placement.")}


def _of_data(run: dict[str, Any]) -> dict[str, Any]:
    return {name: points for name, points in run["figures"].items() if name.startswith("data.")}
