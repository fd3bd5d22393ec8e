"""A real MLflow server that is away: at the start, and in the middle of a training. Nothing is lost."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.trained_model import TrainedModel
from shunter.flows.command.services import free_port, wait_until_ready
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.operation.servers import mlflow_service, running
from shunter.requests import TrainRequest
from shunter.tasks.select import log_decision
from shunter.tasks.train import train_model
from shunter.tracking.reports import log_config
from shunter.tracking.runs import finish, open_run, start_run_tree
from shunter.tracking.store import deliver, undelivered
from shunter.tracking.tree import read_artifact, read_tree
from tests.engine.synthetic import write_dataset
from tests.tracking.test_reports import decision

pytestmark = pytest.mark.slow
PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=300)


@pytest.fixture
def port(tracking_root: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Where the server will be; from now on all is logged there."""
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    return port


@contextmanager
def server(port: int) -> Iterator[None]:
    """MLflow's server over the test's own store."""
    address = os.environ.pop("MLFLOW_TRACKING_URI")
    service = mlflow_service(port)
    os.environ["MLFLOW_TRACKING_URI"] = address
    with running(service) as process:
        wait_until_ready(service, process)
        yield


def train(dataset: Dataset, parent: str, folder: Path, number: int) -> TrainedModel:
    return train_model(
        TrainingJob(
            dataset,
            model_spec(embedding_dim=4),
            Hyperparameters(),
            execution_of(PLACEMENT),
            Schedule(max_epochs=2, seed=number),
        ),
        PLACEMENT,
        folder / str(number),
        name=f"member-{number}",
        parent_run_id=parent,
    )


def test_training_outlives_a_server_that_is_away_at_the_start_and_in_the_middle(
    dataset: Dataset, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    parent = start_run_tree(TrainRequest(), dataset, flow_run_id="flow-1")  # nobody listens there
    log_config(parent, "request", TrainRequest(trials=4).flat())
    log_decision(parent, decision())
    away = train(dataset, parent, tmp_path, 0)
    assert undelivered() > 5
    said = capsys.readouterr().err
    assert said.count("is away") == 1
    assert "delivered when it is back" in said

    with server(port):
        came = deliver()
        assert (came.refused, came.waiting) == (0, 0)
        assert undelivered() == 0
        during = train(dataset, parent, tmp_path, 1)  # the id of our own still serves
        real = open_run(parent).client.real_id(parent)
        assert real != parent

    after = train(dataset, parent, tmp_path, 2)
    finish(parent)
    assert undelivered() > 0

    with server(port):
        assert deliver().waiting == 0
        tree = read_tree(real)
        status = MlflowClient(os.environ["MLFLOW_TRACKING_URI"]).get_run(real).info.status
        assert status == tree.parent.status == "FINISHED"
        assert tree.parent.tags["prefect.flow_run_id"] == "flow-1"
        assert tree.parent.params["placement.threads"] == "2"
        members = {run.tags["mlflow.runName"]: run for run in tree.of_kind("member")}
        assert sorted(members) == ["member-0", "member-1", "member-2"]
        for trained in (away, during, after):
            run = members[trained.name]
            assert run.status == "FINISHED"
            assert run.metrics["quality.ne"] == pytest.approx(trained.validation.ne)
            assert run.tags["energy.source"] == trained.energy.method
            losses = [value for _, value in tree.curves[run.run_id]["quality.train.logloss"]]
            assert losses == pytest.approx([report.train_logloss for report in trained.history])
        assert '"trials": 4' in (read_artifact(real, "config/request.json") or "")
        assert read_artifact(real, "decision.json") is not None
        assert tree.parent.started_at < members["member-0"].started_at < members["member-2"].started_at
