"""A plan is held against the data and the model before anything is trained."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shunter.engine.config import Hyperparameters, Schedule
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.errors import RequestError
from shunter.extensions.distributed import table_planner as step
from shunter.extensions.distributed.planning.calibration import read_executed
from shunter.extensions.distributed.planning.demand import table_names
from shunter.extensions.distributed.planning.machine import executed_on
from shunter.extensions.distributed.planning.plan import Plan, TablePlacement, plan_text
from shunter.extensions.distributed.table_planner import TablePlanner, trains_as_simulated
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.hardware.types import Placement
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tasks.training_plans import trial_placement
from tests.engine.synthetic import write_dataset
from tests.hardware.profiles import make_profile


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=60)


def run_of(dataset: Any, folder: Path, **changes: Any) -> Any:
    """What a step is given, with a plan of the data that some tables of differ."""
    tables = {
        field.name: TablePlacement(rows=field.rows, width=16, kind="table_wise", devices=(place % 2,))
        for place, field in enumerate(dataset.features.categorical)
    }
    plan = Plan(
        model="dlrm",
        data="synthetic",
        fingerprint="f",
        batch_size=64,
        devices=("cpu.0", "cpu.1"),
        devices_per_host=2,
        tables={**tables, **changes},
    )
    path = folder / "plan.yaml"
    path.write_text(plan_text(plan))
    return SimpleNamespace(request=TrainRequest(plan=str(path)), dataset=dataset, plan=plan)


def check(run: Any) -> None:
    """Hold the given plan against the data of a run."""
    TablePlanner().check(run, Path(run.request.training.plan))


def test_a_plan_of_these_tables_is_handed_on_in_their_order(dataset: Any, tmp_path: Path) -> None:
    run = run_of(dataset, tmp_path)
    check(run)
    assert tuple(run.plan.choices(table_names(dataset))) == tuple(
        Choice("table_wise", (place % 2,)) for place in range(4)
    )


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"single0": TablePlacement(rows=7, width=16, kind="row_wise")}, "its table 'single0' has 7 rows"),
        ({"other": TablePlacement(rows=7, width=16, kind="row_wise")}, "which has a table 'other'"),
    ],
)
def test_a_plan_of_other_tables_is_refused(
    dataset: Any, tmp_path: Path, table: dict[str, TablePlacement], told: str
) -> None:
    with pytest.raises(RequestError, match=told):
        check(run_of(dataset, tmp_path, **table))


def test_copies_of_frequent_rows_are_handed_on_and_divided_layers_refused(dataset: Any, tmp_path: Path) -> None:
    run = run_of(dataset, tmp_path, bag0=TablePlacement(rows=50, width=16, kind="row_wise", replicated_rows=9))
    check(run)
    assert Choice("row_wise", replicated_rows=9) in tuple(run.plan.choices(table_names(dataset)))
    split = run.plan.model_copy(update={"layers": {"top.0": "output_split"}})
    Path(run.request.training.plan).write_text(plan_text(split))
    with pytest.raises(RequestError, match="divided layers, which are only simulated"):
        check(run)


@pytest.mark.parametrize("processes", [1, 2])
def test_trials_of_any_family_have_a_place(dataset: Any, processes: int) -> None:
    placement = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
    run: Any = SimpleNamespace(
        request=TrainRequest(model="auto"),
        dataset=dataset,
        decision=SimpleNamespace(placement=placement),
        cluster=None,
        processes=processes,
    )
    assert trial_placement(run) == placement


def test_a_plan_of_another_family_is_refused(dataset: Any, tmp_path: Path) -> None:
    run = run_of(dataset, tmp_path)
    run.request = run.request.model_copy(update={"model": "deepfm"})
    with pytest.raises(RequestError, match="--model"):
        check(run)


@pytest.mark.parametrize(
    ("options", "is_fine"), [({}, False), ({"set": ("embedding_dim=16",)}, True), ({"trials": 1}, True)]
)
def test_a_plan_of_divided_columns_wants_their_width_fixed(
    dataset: Any, tmp_path: Path, options: dict[str, Any], is_fine: bool
) -> None:
    """Else a search might end with another one, and the plan be refused after it."""
    run = run_of(dataset, tmp_path, bag0=TablePlacement(rows=50, width=16, kind="column_wise", devices=(0, 1)))
    run.request = TrainRequest(plan=run.request.training.plan, **options)
    if is_fine:
        check(run)
        return
    with pytest.raises(RequestError, match="embedding_dim=16"):
        check(run)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What would go to MLflow, and a home of its own."""
    kept: list[Any] = []
    monkeypatch.setenv("SHUNTER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(step, "log_trained_plan", lambda *values: kept.append(values))
    monkeypatch.setattr(step, "log_executed", lambda *values: kept.append(values))
    return kept


def training_of(dataset: Any, run: Any, folder: Path, processes: int = 2) -> tuple[Any, TrainingJob, Placement]:
    """A training of a run, as the ensemble asks for it."""
    placement = Placement(accelerator="cpu", threads=processes, precision="fp32", batch_size=16, processes=processes)
    job = TrainingJob(
        dataset, model_spec(embedding_dim=16), Hyperparameters(), execution_of(placement), Schedule(max_epochs=1)
    )
    run = SimpleNamespace(
        **{**vars(run), "dataset": dataset, "cluster": None, "directory": folder, "run_id": "run"},
        processes=processes,
        profiles=[make_profile(cores=2)],
    )
    return run, job, placement


def test_processes_without_a_plan_get_one_that_they_keep_and_learn_from(
    dataset: Any, tmp_path: Path, told: list[Any]
) -> None:
    run, job, placement = training_of(dataset, SimpleNamespace(request=TrainRequest(processes=2)), tmp_path)
    found = TablePlanner().training(run, job, placement)
    assert found is not None
    (_, kept, details) = told[0]
    assert kept.exists()
    assert {one["name"] for one in details["tables"]} == set(table_names(dataset))
    assert "by hand" in details["rivals"]
    again = TablePlanner().training(run, job, placement)
    assert again is not None
    assert again.step == found.step
    assert len(told) == 1, "a training that is gone on with follows the plan that it began with"
    history = [SimpleNamespace(step=10, wait_seconds=0.0, compute_seconds=1.0)]
    trained = SimpleNamespace(history=history, run_id="member", placement=placement, compile_seconds=0.0)
    compiled = SimpleNamespace(**{**vars(trained), "run_id": "compiled", "compile_seconds": 7.0})
    TablePlanner().keep_step(run, found, compiled)
    assert told[-1] == ("compiled", found.step.predicted_seconds, 0.1)
    TablePlanner().keep_step(run, found, trained)
    TablePlanner().keep_step(run, found, trained)
    (plan,) = read_executed(Settings().executed_plans)
    assert (plan.measured_seconds, plan.step.machine) == (0.1, executed_on(run.profiles[0], 2, 1))
    assert told[-1] == ("member", found.step.predicted_seconds, 0.1)
    fewer = placement.model_copy(update={"threads": 8})
    assert not trains_as_simulated(fewer, run.profiles, found.step), "threads that were not simulated"


def test_steps_over_nodes_teach_what_begins_on_another_node_of_theirs(
    dataset: Any, tmp_path: Path, told: list[Any]
) -> None:
    """Without an executed plan the step is a constant times what was measured of its parts."""
    slots = [SimpleNamespace(node=SimpleNamespace(host="box"), shared_by=1)] * 2
    cluster = SimpleNamespace(slots=lambda placement: slots, divided=lambda division: division)
    predicted = []
    for node in ("one", "two"):
        run, job, placement = training_of(dataset, SimpleNamespace(request=TrainRequest(processes=2)), tmp_path / node)
        profile = run.profiles[0]
        here = profile.accelerator.model_copy(update={"name": f"cpu@{node}"})
        run.cluster, run.profiles = cluster, [profile.model_copy(update={"accelerator": here})]
        placement = placement.model_copy(update={"accelerator": here.name, "threads": 1})
        found = TablePlanner().training(run, job, placement)
        assert found is not None
        predicted.append(found.step.predicted_seconds)
        history = [SimpleNamespace(step=10, wait_seconds=0.0, compute_seconds=1.0)]
        TablePlanner().keep_step(
            run, found, SimpleNamespace(history=history, run_id=node, placement=placement, compile_seconds=0.0)
        )
    assert predicted[0] != pytest.approx(0.1)
    assert predicted[1] == pytest.approx(0.1)


def test_a_given_plan_is_followed_and_its_step_predicted(dataset: Any, tmp_path: Path, told: list[Any]) -> None:
    run, job, placement = training_of(dataset, run_of(dataset, tmp_path), tmp_path)
    found = TablePlanner().training(run, job, placement)
    assert found is not None
    assert told[0][2]["is_given"]
    assert found.step.predicted_seconds > 0


def test_one_process_and_more_processes_than_rows_get_no_plan(dataset: Any, tmp_path: Path, told: list[Any]) -> None:
    asked = SimpleNamespace(request=TrainRequest())
    assert TablePlanner().training(*training_of(dataset, asked, tmp_path, processes=1)) is None
    assert TablePlanner().training(*training_of(dataset, asked, tmp_path, processes=64)) is None
    assert not told
