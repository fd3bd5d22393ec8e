"""Runs in a real store: what is written can be read back, found by a filter, and survives interruptions."""

import os
import threading
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun

from shunter.engine.data.dataset import Dataset
from shunter.errors import TrackingError, TrainingError
from shunter.hardware.types import EnergyReading, PowerSample
from shunter.requests import Limits, TrainRequest
from shunter.tracking.find import find_run
from shunter.tracking.history import read_children, read_runs
from shunter.tracking.listing import list_trainings
from shunter.tracking.runs import (
    INTERRUPTED,
    child_run,
    closing,
    finish,
    open_run,
    start_run,
    start_run_tree,
    system_metrics,
)
from shunter.tracking.store import EXPERIMENT, artifact_root, tracking_uri
from tests.engine.synthetic import write_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=200)


@pytest.fixture
def parent(tracking_root: Path, dataset: Dataset) -> str:
    return start_run_tree(TrainRequest(limits=Limits(max_hours=2)), dataset, flow_run_id="flow-1")


def read(run_id: str) -> MlflowRun:
    return MlflowClient(tracking_uri()).get_run(run_id)


def test_store_is_a_file_in_the_home_unless_the_environment_names_one(
    shunter_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tracking_uri() == f"sqlite:///{shunter_home}/mlflow/mlflow.db"
    assert artifact_root() == f"{shunter_home}/mlflow/artifacts"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert tracking_uri() == "http://127.0.0.1:5000"


def test_first_run_creates_the_store_even_below_a_folder_with_a_space(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "a home"))
    run_id = start_run_tree(TrainRequest(), dataset)
    open_run(run_id).client.log_text(run_id, "hello", "note.txt")
    assert (tmp_path / "a home" / "mlflow" / "artifacts" / run_id / "artifacts" / "note.txt").read_text() == "hello"


def test_parent_holds_request_data_and_links(parent: str, dataset: Dataset) -> None:
    run = read(parent)
    assert run.info.status == "RUNNING"
    assert run.data.params["request.max_hours"] == "2.0"
    assert run.data.params["data.fingerprint"] == dataset.fingerprint
    assert run.data.params["data.rows"] == str(dataset.rows)
    assert not run.data.metrics
    assert run.data.tags["prefect.flow_run_id"] == "flow-1"
    assert run.data.tags["schema.version"] == "1"
    assert run.inputs is not None
    assert [entry.dataset.name for entry in run.inputs.dataset_inputs] == ["synthetic"]


def test_children_are_found_below_their_parent(parent: str) -> None:
    with child_run(parent, "trial-0", "trial") as run:
        run.log_params({"model.dropout": 0.1, "model.family": "dlrm"})
        run.log_metrics({"quality.ne": 0.9}, step=1)
        run.log_metrics({"quality.ne": 0.8}, step=2)
    client = MlflowClient(tracking_uri())
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    [found] = client.search_runs(
        [experiment.experiment_id],
        f"tags.mlflow.parentRunId = '{parent}' and tags.`run.kind` = 'trial' and params.`model.dropout` = '0.1'",
    )
    assert found.info.run_id == run.run_id
    assert found.info.status == "FINISHED"
    history = client.get_metric_history(run.run_id, "quality.ne")
    assert [(point.step, point.value) for point in history] == [(1, 0.9), (2, 0.8)]


def test_series_is_written_with_its_steps_even_beyond_one_batch(parent: str) -> None:
    values = [float(number) for number in range(1_500)]
    with child_run(parent, "member-0", "member") as run:
        run.log_series({"quality.ne": values})
    history = MlflowClient(tracking_uri()).get_metric_history(run.run_id, "quality.ne")
    assert [(point.step, point.value) for point in history] == list(enumerate(values, start=1))


@pytest.mark.parametrize(
    ("error", "status"),
    [(TrainingError("The loss is nan."), "FAILED"), (KeyboardInterrupt(), "KILLED"), (SystemExit(1), "KILLED")],
)
def test_what_ends_a_child_is_its_status_and_goes_on_to_the_caller(
    parent: str, error: BaseException, status: str
) -> None:
    with pytest.raises(type(error)), child_run(parent, "trial-0", "trial") as run:
        raise error
    assert read(run.run_id).info.status == status
    assert read(run.run_id).data.tags["run.reason"].startswith(type(error).__name__)


def test_parent_is_closed_as_its_block_ended(parent: str) -> None:
    with closing(parent):
        pass
    assert read(parent).info.status == "FINISHED"


def test_interrupted_parent_is_reopened_and_its_open_children_closed(parent: str, dataset: Dataset) -> None:
    client = open_run(parent).client.mlflow
    left_open = client.create_run(
        read(parent).info.experiment_id, tags={"mlflow.parentRunId": parent, "run.kind": "trial"}
    )
    finish(parent, "KILLED", reason="Interrupted.")
    again = start_run_tree(TrainRequest(limits=Limits(max_hours=2)), dataset, parent_run_id=parent)
    assert again == parent
    assert read(parent).info.status == "RUNNING"
    assert read(left_open.info.run_id).info.status == "KILLED"


def test_each_kind_of_run_has_its_experiment_and_children_are_beside_their_parent(parent: str) -> None:
    night, plan = start_run("shop 2026-01-05", "nightly"), start_run("plan", "plan")
    with child_run(night, "member-0", "member") as child:
        pass
    client = MlflowClient(tracking_uri())
    experiments = [client.get_experiment(read(one).info.experiment_id) for one in (parent, night, plan, child.run_id)]
    assert [one.name for one in experiments] == ["shunter/train", "shunter/nightly", "shunter/plan", "shunter/nightly"]
    assert all(one.tags["mlflow.experimentKind"] == "custom_model_development" for one in experiments)
    found = read_runs(("train", "nightly", "member"))
    assert [one.run_id for one in found] == [parent, night, child.run_id]
    assert find_run(plan) == plan


def test_runs_of_homes_with_one_experiment_are_read_and_resumed_there(parent: str) -> None:
    client = open_run(parent).client.mlflow
    experiment = read(parent).info.experiment_id
    tags = {"run.kind": "nightly", "nightly.model": "shop", "schema.version": "1"}
    old = client.create_run(experiment, tags=tags, run_name="shop 2026-01-04").info.run_id
    new = start_run("shop 2026-01-05", "nightly")
    assert read(new).info.experiment_id != experiment
    assert [one.run_id for one in read_runs(("nightly",))] == [new, old]
    assert start_run("shop 2026-01-04", "nightly", run_id=old) == old
    with child_run(old, "member-0", "member") as child:
        pass
    assert read(child.run_id).info.experiment_id == experiment
    assert [one.run_id for one in read_children(old, "member")] == [child.run_id]


def test_an_interruption_of_a_run_that_resumes_is_no_failure(parent: str) -> None:
    with pytest.raises(KeyboardInterrupt), closing(parent, is_resumable=True):
        raise KeyboardInterrupt
    assert read(parent).info.status == INTERRUPTED
    with pytest.raises(TrainingError), closing(parent, is_resumable=True):
        raise TrainingError("The loss is nan.")
    assert read(parent).info.status == "FAILED"


def test_parent_deleted_meanwhile_is_replaced(parent: str, dataset: Dataset) -> None:
    open_run(parent).client.mlflow.delete_run(parent)
    again = start_run_tree(TrainRequest(), dataset, parent_run_id=parent)
    assert again != parent
    assert start_run_tree(TrainRequest(), dataset, parent_run_id="0" * 32) not in {parent, again}


def test_energy_comes_with_its_origin(parent: str) -> None:
    reading = EnergyReading.of(120.0, 4.0, "estimated", "processor: model")
    open_run(parent).log_energy(reading)
    run = read(parent)
    assert run.data.metrics["energy.joules"] == 120.0
    assert run.data.tags["energy.source"] == "estimated"


def test_energy_comes_with_its_uncertainty_and_with_watts_by_the_second(parent: str) -> None:
    power = tuple(
        PowerSample(seconds=seconds, watts=watts) for seconds, watts in ((1.0, 20.0), (2.0, 40.0), (2.6, 35.0))
    )
    reading = EnergyReading.of(
        81.0, 2.6, "measured", "counter", uncertainty_joules=4.0, uncertainty="processor: 5 %", power=power
    )
    open_run(parent).log_energy(reading)
    run = read(parent)
    assert run.data.metrics["energy.uncertainty_joules"] == 4.0
    assert run.data.tags["energy.uncertainty"] == "processor: 5 %"
    history = open_run(parent).client.mlflow.get_metric_history(parent, "energy.watts")
    assert [(point.step, point.value) for point in history] == [(1, 20.0), (2, 40.0), (3, 35.0)]


def test_unavailable_energy_leaves_no_figure(parent: str) -> None:
    reading = EnergyReading(joules=None, seconds=4.0, mean_watts=None, method="unavailable", source="no counter")
    open_run(parent).log_energy(reading)
    assert "energy.joules" not in read(parent).data.metrics
    assert read(parent).data.tags["energy.source"] == "unavailable"


def test_threads_write_each_to_its_own_run(parent: str) -> None:
    ids: dict[int, str] = {}

    def work(number: int) -> None:
        with child_run(parent, f"trial-{number}", "trial") as run:
            ids[number] = run.run_id
            for step in range(5):
                run.log_metrics({"quality.ne": float(number)}, step=step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: read(run_id).data.metrics["quality.ne"] for number, run_id in ids.items()} == {
        number: float(number) for number in range(4)
    }


def test_system_metrics_are_sampled_into_the_parent(parent: str) -> None:
    seen = threading.Event()
    with system_metrics(parent, interval_seconds=1):
        while not seen.wait(0.2):
            if "system/cpu_utilization_percentage" in read(parent).data.metrics:
                seen.set()
    assert "system/system_memory_usage_percentage" in read(parent).data.metrics


def test_changed_parameter_is_refused_in_one_sentence(parent: str) -> None:
    with pytest.raises(TrackingError, match=r"request\.model") as caught:
        open_run(parent).log_params({"request.model": "another"})
    assert "\n" not in str(caught.value)


def test_store_that_cannot_be_written_is_named(shunter_home: Path, dataset: Dataset) -> None:
    shunter_home.parent.mkdir(exist_ok=True)
    shunter_home.write_text("a file where the folder should be")
    with pytest.raises(TrackingError, match="MLFLOW_TRACKING_URI"):
        start_run_tree(TrainRequest(), dataset)


def test_password_of_the_store_is_not_shown(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://user:secret@127.0.0.1:1/none")
    with pytest.raises(TrackingError) as caught:
        start_run_tree(TrainRequest(), dataset)
    assert "secret" not in str(caught.value)


def test_list_of_runs_is_empty_without_a_store_and_does_not_make_one(shunter_home: Path) -> None:
    assert list_trainings() == []
    assert not os.path.lexists(shunter_home / "mlflow")


def test_list_of_runs_shows_parents_newest_first(parent: str, dataset: Dataset) -> None:
    with child_run(parent, "trial-0", "trial"):
        pass
    open_run(parent).log_metrics({"quality.test.auc": 0.75, "time.total_seconds": 61.0})
    finish(parent)
    second = start_run_tree(TrainRequest(), dataset)
    newest, older = list_trainings()
    assert (newest["run_id"], newest["status"], newest["data"]) == (second, "RUNNING", "synthetic")
    assert (older["run_id"], older["status"], older["data"]) == (parent, "FINISHED", "synthetic")
    assert older["test_auc"] == 0.75
    assert len(list_trainings(limit=1)) == 1
