"""The step on real data, a real store and real files."""

import io
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

import shunter.tasks.progress_line
from shunter.checked_json import unseal
from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import load_model
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.executors.adaptation import Adaptation
from shunter.engine.executors.energy import add_readings
from shunter.engine.job import TrainingJob
from shunter.engine.loop.evaluation import evaluate
from shunter.engine.results import TrainingFigures
from shunter.engine.trained_model import TrainedModel
from shunter.errors import CheckpointError, TrainingError
from shunter.extensions.distributed.executors.process_group import machine_of
from shunter.hardware.types import EnergyReading, Placement, PowerSample
from shunter.masked_console import Console
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.tasks.progress_line import progress_line
from shunter.tasks.train import train_member, train_model
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile

pytestmark = pytest.mark.usefixtures("warm_processes")

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=128)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=2_000)


def train_into(directory: Path, dataset: Dataset, **changes: Any) -> TrainedModel:
    arguments = {
        "spec": model_spec(embedding_dim=8),
        "hyperparameters": Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1),
        "placement": PLACEMENT,
        "schedule": Schedule(max_epochs=3),
    }
    values: dict[str, Any] = {**arguments, **changes}
    spec, rates, placement, schedule = (values.pop(name) for name in arguments)
    job = TrainingJob(dataset, spec, rates, execution_of(placement), schedule, values.pop("warm_start", None))
    return train_model(job, placement, directory, **values)


def test_the_placement_reaches_the_engine() -> None:
    placement = Placement(accelerator="cuda:1", threads=3, precision="bf16", batch_size=99, prefetch_depth=4)
    assert execution_of(placement) == Execution(
        device="cuda:1", threads=3, precision="bf16", batch_size=99, prefetch_depth=4
    )


def test_the_folder_holds_the_model_that_was_validated(dataset: Dataset, tmp_path: Path) -> None:
    trained = train_into(tmp_path / "member", dataset)
    metrics = evaluate(load_model(trained.directory), dataset, "validation", execution_of(PLACEMENT)).metrics
    assert metrics == trained.validation
    assert trained.run_id is None
    assert len(trained.history) == 3
    assert trained.energy.method in ("measured", "estimated", "unavailable")
    assert sorted(path.name for path in trained.directory.iterdir()) == [
        "checkpoint",  # what measurements decided, for a run that is repeated
        "model.json",
        "model.safetensors",
        "trained.json",
    ]


def test_a_finished_training_is_returned_at_once(dataset: Dataset, tmp_path: Path) -> None:
    first = train_into(tmp_path / "member", dataset)
    changed = (first.directory / "model.safetensors").stat().st_mtime_ns
    assert train_into(tmp_path / "member", dataset) == first
    assert (first.directory / "model.safetensors").stat().st_mtime_ns == changed


def test_another_training_in_the_same_folder_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    train_into(tmp_path, dataset)
    with pytest.raises(CheckpointError, match="differs in architecture, schedule"):
        train_into(tmp_path, dataset, spec=model_spec(embedding_dim=16), schedule=Schedule(max_epochs=3, seed=5))


def test_a_damaged_description_is_named(dataset: Dataset, tmp_path: Path) -> None:
    train_into(tmp_path, dataset)
    path = tmp_path / "trained.json"
    path.write_text(unseal(path.read_bytes()).decode().replace('"best_epoch"', '"best_epic"'))
    with pytest.raises(CheckpointError, match=r"trained\.json"):
        train_into(tmp_path, dataset)


def test_an_interrupted_training_goes_on_and_adds_its_energy(dataset: Dataset, tmp_path: Path) -> None:
    asked = 0

    def interrupt() -> None:
        nonlocal asked
        asked += 1
        if asked == 15:
            raise KeyboardInterrupt

    undisturbed = train_into(tmp_path / "undisturbed", dataset)
    with pytest.raises(KeyboardInterrupt):
        train_into(tmp_path / "member", dataset, should_stop=interrupt)
    before = EnergyReading.model_validate(read_json(tmp_path / "member" / "energy.json"))
    resumed = train_into(tmp_path / "member", dataset)
    assert resumed.validation == undisturbed.validation
    assert [report.step for report in resumed.history] == [report.step for report in undisturbed.history]
    assert resumed.energy.seconds > before.seconds > 0
    if before.joules is not None and resumed.energy.joules is not None:
        assert resumed.energy.joules >= before.joules


def test_every_figure_is_in_the_members_run(dataset: Dataset, tmp_path: Path, tracking_root: Path) -> None:
    parent = start_run_tree(TrainRequest(), dataset)
    trained = train_into(tmp_path / "member", dataset, parent_run_id=parent, name="member-0")
    assert trained.run_id is not None
    client = MlflowClient(tracking_uri())
    run = client.get_run(trained.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "member-0"
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert run.data.tags["run.kind"] == "member"
    assert run.data.tags["energy.source"] == trained.energy.method
    assert run.data.tags["training.stopped_because"] == trained.stopped_because
    assert run.data.params["model.embedding_dim"] == "8"
    assert run.data.params["placement.label"] == "cpu x1 fp32 b128"
    assert run.data.params["schedule.max_epochs"] == "3"
    assert run.data.metrics["throughput.samples_per_second"] == trained.samples_per_second
    assert run.data.metrics["quality.ne"] == trained.validation.ne
    curve = [point.value for point in client.get_metric_history(trained.run_id, "quality.train.logloss")]
    assert curve == [report.train_logloss for report in trained.history]


def test_a_failed_training_is_a_failed_run(dataset: Dataset, tmp_path: Path, tracking_root: Path) -> None:
    parent = start_run_tree(TrainRequest(), dataset)
    exploding = Hyperparameters(dense_optimizer="sgd", dense_learning_rate=1e30)
    with pytest.raises(TrainingError):
        train_into(tmp_path / "member", dataset, parent_run_id=parent, hyperparameters=exploding)
    client = MlflowClient(tracking_uri())
    runs = client.search_runs([client.get_run(parent).info.experiment_id], f"tags.mlflow.parentRunId = '{parent}'")
    assert [run.info.status for run in runs] == ["FAILED"]


def test_a_budget_is_told(dataset: Dataset, tmp_path: Path) -> None:
    trained = train_into(tmp_path, dataset, should_stop=lambda: ENOUGH)
    assert trained.stop_reason == ENOUGH
    assert trained.samples_seen == 128


@pytest.mark.usefixtures("prefect_server")
def test_the_task_runs_in_a_flow_and_hands_on_a_small_value(dataset: Dataset, tmp_path: Path) -> None:
    from prefect import flow

    @flow
    def one_member() -> TrainedModel:
        return train_member(
            TrainingJob(
                dataset, model_spec(embedding_dim=8), Hyperparameters(), execution_of(PLACEMENT), Schedule(max_epochs=1)
            ),
            PLACEMENT,
            tmp_path / "member",
            name="member-0",
        )

    trained = one_member()
    assert TrainedModel.model_validate_json(trained.model_dump_json()) == trained
    assert len(trained.model_dump_json()) < 10_000


def reading(joules: float | None, method: str, source: str) -> EnergyReading:
    return EnergyReading(joules=joules, seconds=2.0, mean_watts=None, method=method, source=source)  # type: ignore[arg-type]


def test_two_attempts_are_as_trustworthy_as_the_weaker() -> None:
    measured, estimated = reading(10.0, "measured", "RAPL"), reading(5.0, "estimated", "model")
    total = add_readings(measured, estimated)
    assert (total.joules, total.seconds, total.mean_watts) == (15.0, 4.0, 15.0 / 4)
    assert total.method == "estimated"
    assert total.source == "RAPL; then model"
    assert add_readings(measured, measured).method == "measured"
    assert add_readings(measured, reading(None, "unavailable", "no source")).joules is None


def test_two_attempts_add_their_uncertainties_and_the_watts_follow_each_other() -> None:
    first, second = (
        EnergyReading.of(
            watts * 2,
            2.0,
            "measured",
            "RAPL",
            uncertainty_joules=watts / 10,
            uncertainty="processor: 5 %",
            power=(PowerSample(seconds=2.0, watts=watts),),
        )
        for watts in (10.0, 30.0)
    )
    total = add_readings(first, second)
    assert (total.uncertainty_joules, total.uncertainty) == (4.0, "processor: 5 %")
    assert [(sample.seconds, sample.watts) for sample in total.power] == [(2.0, 10.0), (4.0, 30.0)]
    assert add_readings(first, reading(5.0, "measured", "RAPL")).uncertainty_joules is None


def test_the_bar_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, dataset: Dataset, tmp_path: Path) -> None:
    report = train_into(tmp_path, dataset).history[0]
    monkeypatch.setattr(shunter.tasks.progress_line, "UPDATE_SECONDS", 0.0)
    drawn = {}
    for is_terminal in (True, False):
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=is_terminal, width=150)
        with progress_line("member-0", console) as progress:
            progress.on_step(7, 20)
            progress.on_epoch(report)
        drawn[is_terminal] = screen.getvalue()
    assert "member-0" in drawn[True]
    assert "35%" in drawn[True]
    assert f"NE {report.validation.ne:.4f}" in drawn[True]
    assert drawn[False] == ""


@pytest.mark.slow
def test_two_processes_train_the_model_of_one(dataset: Dataset, tmp_path: Path) -> None:
    alone = train_into(tmp_path / "alone", dataset)
    together = train_into(
        tmp_path / "together", dataset, placement=PLACEMENT.model_copy(update={"processes": 2, "threads": 2})
    )
    assert [report.train_logloss for report in together.history] == pytest.approx(
        [report.train_logloss for report in alone.history], abs=1e-5
    )
    metrics = evaluate(load_model(together.directory), dataset, "validation", execution_of(PLACEMENT)).metrics
    assert metrics.logloss == pytest.approx(together.validation.logloss, abs=1e-6)
    assert together.placement.label == "cpu x2 fp32 b128 p2"
    assert sorted(path.name for path in together.directory.iterdir()) == [
        "checkpoint",  # what measurements decided, for a run that is repeated
        "model.json",
        "model.safetensors",
        "trained.json",
    ]


def test_processes_share_the_memory_of_a_cpu_and_have_a_gpu_each() -> None:
    for name, share in (("cpu", 4), ("cuda:0", 1)):
        profile = make_profile(name=name)
        machine = machine_of(profile, 4)
        assert machine.memory_bytes == profile.accelerator.memory_bytes // share
        assert machine.memory_bytes_per_second == profile.copy_bytes_per_second.value
        assert machine.link_bytes_per_second, "measured at the start it would differ each time, and the plan with it"


def test_steps_that_leave_their_predicted_time_let_other_threads_take_over_and_the_run_says_so(
    dataset: Dataset, tmp_path: Path, tracking_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.engine.executors.adaptation.WINDOW_SECONDS", 0.0)
    two = PLACEMENT.model_copy(update={"threads": 2})

    def fewest(present: Placement, times: Mapping[Placement, float]) -> Placement:
        return min(times, key=lambda one: one.threads)

    adaptation = Adaptation(two, (1e-9, 2e-9), [PLACEMENT, two], fewest)
    parent = start_run_tree(TrainRequest(), dataset)
    trained = train_into(
        tmp_path / "member",
        dataset,
        placement=two,
        schedule=Schedule(max_epochs=15, patience=15),
        adaptation=adaptation,
        parent_run_id=parent,
    )
    assert adaptation.placement == PLACEMENT
    run = MlflowClient(tracking_uri()).get_run(str(trained.run_id))
    assert run.data.metrics["adaptation.threads"] == 1
    assert run.data.metrics["adaptation.step_seconds"] > 0
    assert "1 thread(s) replace 2" in run.data.tags["adaptation.reason"]
    assert run.data.params["placement.threads"] == "2", "what was chosen before the training"


def test_a_description_holds_every_figure_of_its_training() -> None:
    assert {field.name for field in fields(TrainingFigures)} <= set(TrainedModel.model_fields)
