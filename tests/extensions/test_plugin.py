"""Another distribution adds a model family, a loss, a metric, a reader of logs, a callback and a search method."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shunter.settings import PROJECT_ROOT

PLUGIN = PROJECT_ROOT / "examples" / "plugin"
PAGES = "".join(path.read_text() for path in (PROJECT_ROOT / "docs" / "how-to").glob("extend*.md"))
ROWS = 1200
TRAINING = """
import json, sys
import pandas as pd
from shunter.flows.train import train
from shunter.requests import TrainRequest
from shunter.tracking.registry.models import load_champion
from shunter.tracking.store import open_store
from shunter.tracking.tree import read_tree

summary = train(
    TrainRequest(
        data=f"jsonl:{sys.argv[1]}", schema_file=sys.argv[2], model="wide", set=("loss=poly", "scale=2.0"),
        search_method="patient", trials=12, max_epochs=1, ensemble_size=1, baselines="none",
        explore="never", promote="always",
    )
)
rows = pd.DataFrame([{"user": 1, "item": 2, "price": 0.5}] * 2)
result = summary.result
print(json.dumps({
    "stop": summary.tuned.stop_reason.kind,
    "settings": [[one.spec.to_dict(), one.hyperparameters.to_dict()] for one in summary.tuned.settings],
    "validation": result.validation.more, "test": result.test.more,
    "registered": [summary.registered.name, summary.registered.version],
    "trial_metrics": next(
        run.data.metrics
        for run in open_store().mlflow.search_runs(
            [one.experiment_id for one in open_store().mlflow.search_experiments()], "tags.`run.kind` = 'trial'"
        )
    ),
    "figures": dict(read_tree(summary.run_id).parent.metrics),
    "metrics": open_store().mlflow.get_run(summary.run_id).data.metrics,
    "scores": [float(one) for one in load_champion(summary.registered.name).predict(rows)],
}))
"""
NAMES = """
import json, sys
from shunter.requests import TrainRequest
from shunter.model_families import MODEL_FAMILIES, is_ranking
from shunter.ingestion.sources.names import is_named, named_datasets
offered = TrainRequest.model_json_schema()["$defs"]["ModelRequest"]["properties"]["model"]["enum"]
named = [one.name for one in named_datasets()]
loaded = [name for name in sys.modules if name.startswith("shunter_example.")]
found = [MODEL_FAMILIES.names[-1], is_ranking("wide"), "wide" in offered, named[-1], loaded]

from shunter.engine.job import Hooks
from shunter.errors import TrainingError
from shunter.tracking.callbacks import CalledTraining, called
from shunter_example.roles import Journal
for raised in (ValueError(), TrainingError()):
    def fail(*_): raise raised
    Journal.on_step, steps = fail, []
    hooks = called(Hooks(on_step=lambda *step: steps.append(step)), CalledTraining("trial-0", "trial", None))
    try: hooks.on_step(1, 2)
    except Exception as error: found.append([type(error).__name__, getattr(error, "method", None)])
    assert steps == [(1, 2)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the distribution is installed, as `pip install --target` does."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PLUGIN / "shunter_example", folder / "shunter_example")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))
    return folder


def run(site: Path, script: str, *arguments: str, **variables: str) -> Any:
    """Run a script with the distribution installed, and return what its last line holds."""
    environment = {**os.environ, **variables, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("path", ["pyproject.toml", *(f"shunter_example/{one}.py" for one in ("__init__", "wide"))])
def test_the_page_shows_a_file_as_it_is(path: str) -> None:
    assert (PLUGIN / path).read_text() in PAGES


def test_the_page_shows_each_role_as_it_is() -> None:
    parts = (PLUGIN / "shunter_example" / "roles.py").read_text().split("\n\n\n")[1:]
    assert all(part.strip() in PAGES for part in parts)


def test_names_are_offered_without_an_import_and_errors_of_a_callback_are_named(site: Path) -> None:
    assert run(site, NAMES) == ["wide", False, True, "jsonl", [], ["CallbackError", "on_step"], ["TrainingError", None]]


@pytest.mark.slow
def test_all_roles_of_another_distribution_serve_in_one_training(
    site: Path, tmp_path: Path, shunter_home: Path, furnish: Callable[[Path], Path], prefect_server: str
) -> None:
    home = furnish(shunter_home)
    random = np.random.default_rng(0)
    user, item = random.integers(0, 30, ROWS), random.integers(0, 20, ROWS)
    clicked = random.random(ROWS) < 0.2 + 0.6 * (user % 2 == item % 2)
    log = pl.DataFrame({"user": user, "item": item, "price": random.random(ROWS), "click": clicked.astype(int)})
    log.write_ndjson(tmp_path / "clicks.jsonl")
    (tmp_path / "schema.yaml").write_text("label: click\nnumeric: [price]\ncategorical: [user, item]\n")

    journal = tmp_path / "journal.jsonl"
    paths = (str(tmp_path / "clicks.jsonl"), str(tmp_path / "schema.yaml"))
    found = run(site, TRAINING, *paths, SHUNTER_HOME=str(home), PREFECT_API_URL=prefect_server, JOURNAL=str(journal))

    assert [(spec["family"], spec["scale"], learned["loss"]) for spec, learned in found["settings"]] == [
        ("wide", 2.0, "poly")
    ] * len(found["settings"])
    assert found["stop"] == "exhausted"
    assert 4 <= len(found["settings"]) < 12
    assert 0 < found["validation"]["brier"] < 0.25
    assert found["figures"]["quality.brier"] == found["validation"]["brier"]
    assert found["metrics"]["quality/brier"] == found["test"]["brier"]
    assert all(0 < score < 1 for score in found["scores"])
    assert len(found["scores"]) == 2
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    trials = [name for event, name, _ in events if event == "trial"]
    assert sorted(trials) == sorted({*trials})
    assert len(trials) >= 4
    assert {name for event, name, _ in events if event == "epoch"} >= {*trials}
    assert {name for event, name, _ in events if event == "step"} & {*trials}
    assert events[-1] == ["registered", *found["registered"]]
    assert found["trial_metrics"]["journal.step_seconds"] > 0
