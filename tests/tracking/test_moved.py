"""A home that was moved or copied finds its own artifacts, and goes on with its own runs."""

import shutil
from collections import OrderedDict
from pathlib import Path

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.hardware.types import EnergyReading
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tasks.run_state import RunState
from shunter.tasks.spending import Spent
from shunter.tracking import entries
from shunter.tracking.outbox import Outbox
from shunter.tracking.reports import log_texts
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import artifact_root, deliver, open_store, tracking_uri, undelivered
from shunter.tracking.tree import read_artifact
from tests.engine.synthetic import write_dataset

SPENT = Spent(energy=EnergyReading.of(7.0, 3.5, "estimated", "a test"))


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=100)


@pytest.mark.parametrize("is_copied", [False, True])
def test_artifacts_and_runs_go_with_the_home(
    is_copied: bool, tracking_root: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start_run_tree(TrainRequest(), dataset)
    log_texts(run_id, {"notes.txt": "as it was"})
    with RunState(TrainRequest(), dataset, "host") as state:
        state.remember("spent", SPENT)
    former, now = Settings().home, tmp_path / "100 % new_home"
    shutil.copytree(former, now)
    if is_copied:
        log_texts(run_id, {"notes.txt": "changed in the former home"})
    else:
        shutil.rmtree(former)
    monkeypatch.setenv("SHUNTER_HOME", str(now))
    # Another process remembers nothing of the former folder.
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._artifact_repos_cache", OrderedDict())
    assert artifact_root().startswith(str(now))
    assert read_artifact(run_id, "notes.txt") == "as it was"
    log_texts(run_id, {"later.txt": "in the new home"})
    assert list(now.rglob("later.txt"))
    assert former.exists() == is_copied
    assert str(open_store().mlflow.get_run(run_id).info.artifact_uri).startswith(str(now))
    with RunState(TrainRequest(), dataset, "host") as state:
        assert state.resumed
        assert state.recall("spent", Spent) == SPENT


def test_a_home_that_stays_is_left_alone(tracking_root: Path, dataset: Dataset) -> None:
    run_id = start_run_tree(TrainRequest(), dataset)
    uri = open_store().mlflow.get_run(run_id).info.artifact_uri
    assert open_store().mlflow.get_run(run_id).info.artifact_uri == uri


def test_what_waits_for_the_homes_own_store_moves_with_it(
    tracking_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store()
    former, now = Settings().home, tmp_path / "new home"
    Outbox(tracking_uri()).append({**entries.create_run("waits", {}), "run_id": "local-1"})
    former.rename(now)
    monkeypatch.setenv("SHUNTER_HOME", str(now))
    assert undelivered() == 1
    deliver()
    assert undelivered() == 0
    [found] = open_store().mlflow.search_runs(["1"])
    assert found.info.run_name == "waits"
