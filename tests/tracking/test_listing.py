"""The short lists, read from the tables, say what MLflow says; and they are what the convention names."""

import json
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from shunter.engine.checkpoint.storage import save_model
from shunter.errors import TrackingError
from shunter.flows.command.listings import runs_table, selected_runs
from shunter.models.ensemble import Ensemble
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.settings import PROJECT_ROOT
from shunter.tracking import convention, listing, store
from shunter.tracking.find import find_run
from shunter.tracking.history import read_children, read_runs
from shunter.tracking.links import runs_table_links
from shunter.tracking.listing import list_trainings, list_versions
from shunter.tracking.registry.client import open_registry
from shunter.tracking.registry.models import register_model
from shunter.tracking.registry.rival import rival_of
from shunter.tracking.registry.versions import make_champion
from shunter.tracking.runs import child_run, finish, open_run, start_run_tree
from shunter.tracking.store import open_store
from shunter.tracking.tree import read_artifact, read_tree
from tests.engine.synthetic import write_dataset

HEAVY = {"torch", "prefect", "mlflow", "optuna", "polars", "pandas", "pyarrow", "numpy", "sqlalchemy", "scipy"}


@pytest.fixture
def filled(tracking_root: Path, tmp_path: Path) -> list[str]:
    """Two trainings and a deleted one, of which the first has three versions of a model, the second of them in use."""
    dataset = write_dataset(tmp_path / "data", rows=200)
    runs = [start_run_tree(TrainRequest(), dataset) for _ in range(3)]
    with child_run(runs[0], "trial-0", "trial"):
        pass
    open_run(runs[0]).log_metrics(
        {"quality.test.auc": 0.75, "time.total_seconds": 61.0, "quality.test.ne": float("nan")}
    )
    open_run(runs[1]).log_figures("quality", {"quality.test.rmse": 1.25, "quality.test.mae": 1.0})
    open_run(runs[0]).set_tags({"energy.source": "estimated"})
    finish(runs[0])
    registry = open_registry()
    registry.ensure_registered_model("shop", "")
    logged = registry.logged_model(runs[0], "shop")
    registry.create_version("shop", logged, runs[0], {})
    for _ in range(2):  # by hand, for a run registers once
        registry.mlflow.create_model_version("shop", logged.artifact_location, runs[0], model_id=logged.model_id)
    make_champion(registry, "shop", 1)
    make_champion(registry, "shop", 2)
    registry.mlflow.delete_model_version("shop", "3")
    open_store().mlflow.delete_run(runs[2])
    return runs


def test_what_is_read_from_the_tables_is_what_mlflow_says(filled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    trainings, versions = list_trainings(), list_versions()
    monkeypatch.setattr(store, "store_file", lambda: None)
    assert (list_trainings(), list_versions()) == (trainings, versions)
    assert sorted(run["run_id"] for run in trainings) == sorted(filled[:2])
    [first] = [run for run in trainings if run["run_id"] == filled[0]]
    assert (first["test_auc"], first["test_ne"], first["status"], first["data"]) == (
        0.75,
        None,
        "FINISHED",
        "synthetic",
    )
    [of_numbers] = [run for run in trainings if run["run_id"] == filled[1]]
    assert (of_numbers["test_rmse"], of_numbers["test_mae"], of_numbers["test_auc"]) == (1.25, 1.0, None)
    assert {"RMSE", "MAE"} <= {*runs_table(trainings).columns}
    assert "RMSE" not in runs_table([first]).columns
    assert [one["run_id"] for one in selected_runs(9, "rmse", "rmse < 2 and mae < 2")] == [filled[1]]
    assert [(one["version"], one["aliases"]) for one in versions] == [(2, ["champion"]), (1, ["previous"])]
    assert (versions[0]["test_auc"], versions[0]["energy_source"]) == (0.75, "estimated")


def test_version_names_the_family_that_it_holds(tracking_root: Path, tmp_path: Path) -> None:
    """A baseline that won is no dlrm, which is what was requested."""
    dataset = write_dataset(tmp_path / "data", rows=200)
    (dataset.directory / "encoder").mkdir()
    (dataset.directory / "encoder" / "encoder.json").write_text("{}")
    members = [build_model(model_spec(family), dataset.features).eval() for family in ("fm", "lr", "fm")]
    save_model(Ensemble(members, [0.5, 0.0, 0.5]), tmp_path / "model")
    register_model(start_run_tree(TrainRequest(), dataset), dataset, tmp_path / "model", "shop", metrics={})
    assert TrainRequest().model == "dlrm"
    [version] = list_versions()
    assert version["model"] == "fm"
    assert {"families", "compression"}.isdisjoint(version)


def test_as_many_as_asked_for_the_newest_first(filled: list[str]) -> None:
    assert [run["run_id"] for run in list_trainings()][:1] == [run["run_id"] for run in list_trainings(1)]


def test_tables_of_another_version_are_left_to_mlflow(filled: list[str]) -> None:
    trainings = list_trainings()
    asked: list[str] = []

    def fail(_: sqlite3.Connection) -> list[dict[str, object]]:
        raise sqlite3.OperationalError("no such column: start_time")

    def of_mlflow() -> list[dict[str, object]]:
        asked.append("mlflow")
        return trainings

    assert listing._listed(fail, of_mlflow) == trainings
    assert asked == ["mlflow"]


def test_without_a_store_nothing_is_listed_and_none_is_made(shunter_home: Path) -> None:
    assert (list_trainings(), list_versions()) == ([], [])
    assert not shunter_home.exists()


def test_a_damaged_store_is_told(tracking_root: Path) -> None:
    (tracking_root / "mlflow.db").write_bytes(b"no database" * 1000)
    with pytest.raises(TrackingError, match=r"failed \(file is not a database\): check that it can be reached"):
        list_trainings()


def test_the_names_are_those_of_the_convention() -> None:
    names = {column: name for column, (_, *_, name) in {**listing.COLUMNS, **listing.VERSION_COLUMNS}.items()}
    assert names["validation_auc"] == convention.QUALITY_METRICS["auc"]
    assert names["validation_ne"] == convention.QUALITY_METRICS["ne"]
    assert names["total_seconds"] == convention.TOTAL_SECONDS
    assert names["energy_joules"] == convention.ENERGY_METRICS["joules"]
    several = [names for _, *names in listing.COLUMNS.values() if len(names) > 1]
    assert several
    assert all(convention.HEADLINES[old][0] == new for new, old in several)


@pytest.mark.parametrize("command", ["runs", "models", "datasets", "status", "runs --json", "--version"])
def test_short_commands_import_nothing_heavy(command: str, tmp_path: Path, empty_database: Path) -> None:
    """What keeps them quick on any machine: a library of those would take a second or more."""
    (tmp_path / "home" / "mlflow").mkdir(parents=True)
    shutil.copy(empty_database, tmp_path / "home" / "mlflow" / "mlflow.db")
    script = (
        "import sys\nsys.argv = ['shunter', *sys.argv[1:]]\nfrom shunter.flows.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print(sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command.split()],
        env={
            "SHUNTER_HOME": str(tmp_path / "home"),
            "PATH": "",
            "HOME": str(tmp_path),
            "PYTHONPATH": str(PROJECT_ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_runs_and_their_trees_are_read_from_the_tables_as_mlflow_reads_them(
    filled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(filled[0])
    run.log_series({"quality.ne": [1.0, 0.9]})
    run.log_metrics({"time.wait_seconds": float("inf")})
    run.client.log_text(filled[0], "{}", "config/request.json")

    def read() -> list[str]:
        tree = read_tree(filled[0])
        found = [read_runs(("train", "trial")), read_children(filled[0], "trial"), tree.parent, tree.children]
        values = [[asdict(one) for one in (some if isinstance(some, list | tuple) else [some])] for some in found]
        texts = [read_artifact(filled[0], path) for path in ("config/request.json", "config/absent.json")]
        return [json.dumps(one, sort_keys=True) for one in (values, tree.curves, tree.artifacts, texts, find_run())]

    of_tables = read()
    assert filled[0] in of_tables[-1]
    assert json.loads(of_tables[1])[filled[0]] == {"quality.ne": [[1, 1.0], [2, 0.9]]}
    for prefix in (filled[1][:8], filled[1]):
        assert find_run(prefix) == filled[1]
    monkeypatch.setattr(store, "store_file", lambda: None)
    assert read() == of_tables
    assert find_run(filled[1]) == filled[1]


def test_the_table_of_runs_has_an_address_once_there_is_a_run(filled: list[str], tmp_path: Path) -> None:
    experiment = open_store().mlflow.get_run(filled[0]).info.experiment_id
    assert f"/#/experiments/{experiment}/runs?" in runs_table_links()["shunter/train"]


def test_without_a_store_there_is_no_table_of_runs(shunter_home: Path) -> None:
    assert runs_table_links() == {}


def test_a_new_version_is_compared_with_the_figures_of_the_one_before(filled: list[str]) -> None:
    figures = {"quality.test.rmse": 0.9, "quality.test.relative_loss": 0.8}  # as a run writes them today
    open_run(filled[0]).log_figures("quality", figures)
    rival = rival_of("shop", 2)
    assert rival is not None
    assert (rival.version, rival.figures) == (1, {"AUC": 0.75, "RMSE": 0.9, "relative loss": 0.8})
