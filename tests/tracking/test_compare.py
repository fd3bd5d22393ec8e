"""Runs of other models and placements line up in MLflow's compare view, because their names are the same."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.tasks.select import log_decision
from shunter.tasks.train import train_model
from shunter.tracking.history import TrackedRun
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from shunter.tracking.tree import read_tree
from tests.engine.synthetic import write_dataset
from tests.tracking.test_reports import decision

SETTINGS = {
    "dlrm": (model_spec(embedding_dim=4), "fp32", 64, 1),
    "dcnv2": (model_spec(family="dcnv2", embedding_dim=8), "bf16", 128, 2),
    "dnn": (model_spec(family="dnn", embedding_dim=4, top_widths=(8,)), "fp32", 256, 1),
}
# What any two trainings must be comparable in, by `mlflow/README.md`.
COMMON = {
    "quality.auc",
    "quality.ne",
    "quality.logloss",
    "quality.calibration",
    "quality.train.logloss",
    "time.train_seconds",
    "time.compute_seconds",
    "stall.wait_share",
    "throughput.samples_per_second",
    "memory.peak_bytes",
    "training.best_epoch",
    "placement.threads",
    "placement.batch_size",
    "schedule.max_epochs",
}


@pytest.fixture
def runs(tracking_root: Path, tmp_path: Path) -> dict[str, TrackedRun]:
    """The member of each setting, each in a tree of its own."""
    dataset = write_dataset(tmp_path / "data", rows=400)
    found = {}
    for name, (spec, precision, batch_size, threads) in SETTINGS.items():
        parent = start_run_tree(TrainRequest(model=name), dataset)
        log_decision(parent, decision())
        placement = Placement(accelerator="cpu", threads=threads, precision=precision, batch_size=batch_size)  # type: ignore[arg-type]
        job = TrainingJob(dataset, spec, Hyperparameters(), execution_of(placement), Schedule(max_epochs=1))
        train_model(job, placement, tmp_path / name, parent_run_id=parent)
        [found[name]] = read_tree(parent).of_kind("member")
    return found


def test_metrics_of_every_family_and_placement_have_the_same_names(runs: dict[str, TrackedRun]) -> None:
    names = {name: set(run.metrics) for name, run in runs.items()}
    own = {name: {metric for metric in found if metric.startswith("model.")} for name, found in names.items()}
    measured = {name: found - own[name] for name, found in names.items()}
    assert measured["dlrm"] == measured["dcnv2"] == measured["dnn"]
    assert measured["dlrm"] >= COMMON
    assert {"energy.source", "training.stopped_because"} <= set(runs["dlrm"].tags) & set(runs["dcnv2"].tags)


def test_parents_line_up_too(runs: dict[str, TrackedRun]) -> None:
    client = MlflowClient(tracking_uri())
    parents = [client.get_run(str(run.parent_run_id)).data for run in runs.values()]
    assert {frozenset(parent.metrics) for parent in parents} == {frozenset(parents[0].metrics)}
    assert {frozenset(parent.params) for parent in parents} == {frozenset(parents[0].params)}
    assert {parent.params["request.model"] for parent in parents} == set(SETTINGS)
