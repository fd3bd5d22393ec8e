"""Artifacts of the parent run, read back as a person would open them."""

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from shunter.hardware.types import Prediction
from shunter.planner.assessment import Candidate
from shunter.planner.decide import Decision, decide
from shunter.planner.job_size import JobSize
from shunter.planner.rank.totals import Terms
from shunter.requests import Limits, Objective, TrainRequest
from shunter.tasks.select import log_decision
from shunter.tracking.history import tracked_run
from shunter.tracking.reports import log_config
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from shunter.tracking.tree import read_tree
from tests.engine.synthetic import write_dataset
from tests.tracking.test_convention import PLACEMENT, WORKLOAD


@pytest.fixture
def parent(tracking_root: Path, tmp_path: Path) -> str:
    return start_run_tree(TrainRequest(), write_dataset(tmp_path / "data", rows=200))


def artifact(run_id: str, path: str) -> str:
    location = MlflowClient(tracking_uri()).get_run(run_id).info.artifact_uri
    return Path(download_artifacts(artifact_uri=f"{location}/{path}", tracking_uri=tracking_uri())).read_text()


def decision() -> Decision:
    candidates = [
        Candidate(
            placement=PLACEMENT.model_copy(update={"threads": threads}),
            prediction=Prediction(
                step_seconds=0.01 / threads,
                epoch_seconds=1 / threads,
                epoch_joules=20.0,
                memory_bytes=10**9,
                samples_per_second=5e4 * threads,
                step_seconds_source="measured",
                energy_source="estimated",
            ),
            accelerator_memory_bytes=10**10,
        )
        for threads in (1, 2)
    ]
    job = JobSize(tuning_epochs=10, final_epochs=10, evaluation_share=0.1)
    return decide(candidates, Terms.of(Limits(), Objective.TIME, job), workload=WORKLOAD)


def test_config_is_kept_as_json(parent: str) -> None:
    log_config(parent, "request", TrainRequest(trials=4).flat())
    assert json.loads(artifact(parent, "config/request.json"))["trials"] == 4


def test_decision_is_kept_with_table_figures_and_reason(parent: str) -> None:
    chosen = decision()
    log_decision(parent, chosen)
    log_decision(parent, chosen)  # a resumed run does so again
    table = json.loads(artifact(parent, "decision.json"))
    assert table["columns"][:2] == ["rank", "placement"]
    assert [row[1] for row in table["data"]] == ["cpu x2 bf16 b512", "cpu x1 bf16 b512"]
    run = MlflowClient(tracking_uri()).get_run(parent)
    assert run.data.params["placement.threads"] == "2"
    assert run.data.metrics.keys() == {"prediction/job_seconds"}
    figures = read_tree(parent).parent.metrics
    assert figures["placement.threads"] == 2
    assert figures["workload.train_samples"] == 1_000
    assert figures["prediction.step_seconds"] == 0.005
    assert tracked_run(run).metrics["prediction.plan_seconds"] == chosen.plan_seconds
    assert run.data.tags["prediction.energy_source"] == "estimated"
    assert run.data.tags["decision.reason"] == chosen.reason
    assert chosen.explanation in artifact(parent, "decision.md")
