"""What a training to the end leaves for later choices: its record whatever its end, and what its steps took."""

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from shunter import parallel
from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.stopping import WORK, Budget, RunClock, StopKind
from shunter.errors import TrainingError
from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.types import EnergyReading, Placement
from shunter.models.registry import model_spec
from shunter.planner.history import History, PastRun, read_history
from shunter.planner.predict.observe import expect
from shunter.requests import TrainRequest
from shunter.tasks.train import train_model
from shunter.tasks.train.member import TrainingRecord
from shunter.tracking.runs import child_run, start_run_tree
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
SPEC = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=600)


@pytest.fixture
def parent(tracking_root: Path, dataset: Dataset) -> str:
    return start_run_tree(TrainRequest(), dataset)


def trained(dataset: Dataset, parent: str, folder: Path, **changes: Any) -> Any:
    rates = changes.pop("rates", Hyperparameters(dense_learning_rate=5e-3, embedding_learning_rate=0.1))
    return train_model(
        job_of(dataset, rates),
        PLACEMENT,
        folder,
        parent_run_id=parent,
        expected=expect(dataset, SPEC, PLACEMENT, make_profile(), []),
        **changes,
    )


def job_of(dataset: Dataset, rates: Hyperparameters) -> TrainingJob[Any, Any, Any]:
    return TrainingJob(dataset, SPEC, rates, execution_of(PLACEMENT), Schedule(max_epochs=2, patience=5))


def member_of(history: History) -> PastRun:
    (member,) = [run for run in history.runs if run.kind == "member"]
    return member


def test_finished_training_teaches_its_steps_beside_the_prediction(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    result = trained(dataset, parent, tmp_path / "member")
    member = member_of(read_history())
    assert (member.outcome, member.epochs, member.planned_epochs) == ("reached", 2.0, 2.0)
    assert member.auc == pytest.approx(result.validation.auc, rel=1e-4)
    assert member.measured.seconds == pytest.approx(result.train_seconds, rel=1e-4)
    assert member.measured.memory_bytes == result.peak_memory_bytes
    assert member.predicted.memory_bytes is not None
    (step,) = member.steps
    assert step.measured_seconds == pytest.approx(member.measured.step_seconds, rel=1e-4)
    assert not step.compiled


def test_energy_is_kept_while_it_trains_for_the_attempt_after_a_kill(
    dataset: Dataset, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "INTERVAL_SECONDS", 0.01)
    seen: list[float] = []

    def wait_in_the_first_epoch() -> None:
        while not seen and not (tmp_path / "member/energy.json").exists():
            time.sleep(0.01)
        seen.append(1.0)

    trained(dataset, parent, tmp_path / "member", should_stop=wait_in_the_first_epoch)
    assert len(seen) > 1


def test_stopped_training_is_a_lower_bound(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    trained(dataset, parent, tmp_path / "member", should_stop=lambda: ENOUGH)
    member = member_of(read_history())
    assert (member.outcome, member.limit, member.is_censored) == ("stopped", "time", True)
    assert member.epochs is not None
    assert member.epochs < 1


def test_failed_training_says_why_and_what_it_took(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    exploding = Hyperparameters(dense_optimizer="sgd", dense_learning_rate=1e30)
    with pytest.raises(TrainingError):
        trained(dataset, parent, tmp_path / "member", rates=exploding)
    history = read_history()
    member = member_of(history)
    assert (member.outcome, member.out_of_memory) == ("failed", False)
    assert member.seconds is not None
    assert not history.excluded
    assert not history.steps


def test_training_that_runs_out_of_memory_is_told_apart(
    dataset: Dataset, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("shunter.engine.executors.in_process.InProcessExecutor.run", exhausted)
    with pytest.raises(MemoryError):
        trained(dataset, parent, tmp_path / "member")
    assert member_of(read_history()).out_of_memory


class _Energy:
    def __init__(self, measured_joules: float = 0.0) -> None:
        self._measured_joules = measured_joules

    def reading(self) -> EnergyReading:
        return EnergyReading.of(10.0, 2.0, "estimated", "a model", measured_joules=self._measured_joules)


@pytest.mark.parametrize(("measured_joules", "watts"), [(4.9, None), (5.0, 5.0)])
def test_power_is_learned_where_most_of_it_was_measured(
    dataset: Dataset, parent: str, tmp_path: Path, measured_joules: float, watts: float | None
) -> None:
    result = trained(dataset, parent, tmp_path / "member")
    energy = _Energy(measured_joules)
    expected = expect(dataset, SPEC, PLACEMENT, make_profile(), [])
    job = job_of(dataset, result.hyperparameters)
    with child_run(parent, "told", "member") as run:
        record = TrainingRecord(job, PLACEMENT, energy, expected, compiled=True)  # pyright: ignore[reportArgumentType]
        record.log(run, result, learns_steps=True)
    [told] = [run for run in read_history().runs if run.kind == "member" and run.compiled]
    assert [step.mean_watts for step in told.steps] == [watts]


def test_compiled_steps_say_so(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    result = trained(dataset, parent, tmp_path / "eager")
    expected = expect(dataset, SPEC, PLACEMENT, make_profile(), [])
    compiled = result.model_copy(update={"compute_seconds": result.compute_seconds / 4})
    job = job_of(dataset, result.hyperparameters)
    with child_run(parent, "compiled", "member") as run:
        record = TrainingRecord(job, PLACEMENT, _Energy(), expected, compiled=True)  # pyright: ignore[reportArgumentType]
        record.log(run, compiled, learns_steps=True)
    members = {run.compiled: run.steps for run in read_history().runs if run.kind == "member"}
    assert [step.compiled for step in members[True]] == [True]
    assert [step.compiled for step in members[False]] == [False]


@pytest.mark.parametrize("jump_seconds", [86_400.0, -86_400.0])
def test_a_clock_that_jumps_at_every_look_changes_no_duration_and_no_limit(
    jump_seconds: float, dataset: Dataset, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()
    real, began = time.time, time.monotonic()
    monkeypatch.setattr(time, "time", lambda: real() + jump_seconds * next(looks))
    clock = RunClock()
    with measure_energy() as meter, clock.counting(WORK):
        budget = Budget(clock=clock, meter=meter, max_seconds=3600.0)
        result = trained(dataset, parent, tmp_path / "member", should_stop=budget.exhausted)
    assert next(looks) > 1, "otherwise nobody has looked"
    assert result.stop_reason.kind is StopKind.MAX_EPOCHS
    of_run = (result.energy.seconds, meter.reading.seconds, budget.seconds)
    most_seconds = time.monotonic() - began
    for seconds in (result.train_seconds, result.compute_seconds, *of_run):
        assert 0 < seconds <= most_seconds
