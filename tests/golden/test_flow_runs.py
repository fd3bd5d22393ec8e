"""A whole training leaves the same names and figures in MLflow, and so does one that explores and falls back."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.golden import flow_runs
from tests.golden.recorded import is_recording, read, write
from tests.golden.whole_runs import assert_run_as_recorded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def trained(home: Path, prefect_server: str) -> tuple[MlflowClient, str]:
    return flow_runs.run_flow(home)


def test_a_training_writes_the_recorded_names_to_mlflow(trained: tuple[MlflowClient, str]) -> None:
    found = flow_runs.names(*trained)
    if is_recording():
        write(flow_runs.FILE, found)
    expected = read(flow_runs.FILE)
    assert flow_runs.comparable(found, expected) == flow_runs.comparable(expected, found)


def test_a_training_has_the_recorded_settings_ensemble_and_quality(trained: tuple[MlflowClient, str]) -> None:
    assert_run_as_recorded("train", *trained)


def test_an_exploration_that_misses_the_quality_goes_on_at_the_best_known(
    home: Path, trained: tuple[MlflowClient, str]
) -> None:
    client, run_id = flow_runs.run_flow(home, flow_runs.EXPLORING)
    experiment = client.get_run(run_id).info.experiment_id
    runs = client.search_runs([experiment], "tags.`run.kind` = 'train'", order_by=["start_time ASC"])
    assert [(run.data.params["placement.batch_size"], run.info.status) for run in runs] == [
        ("64", "FINISHED"),
        ("512", "FINISHED"),
    ]
    trials = [run.data for run in flow_runs.children_of(client, run_id) if run.data.tags["run.kind"] == "trial"]
    assert [one.params["placement.batch_size"] for one in trials] == ["512", "64"]
    assert runs[-1].info.run_id == run_id
    assert_run_as_recorded("exploration", client, run_id)
