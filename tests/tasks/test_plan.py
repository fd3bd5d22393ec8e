"""A plan is held against the data and the model before anything is trained."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.parallel import GivenTable
from planner.parallel.demand import table_names
from planner.parallel.plan import Plan, TablePlacement, plan_text
from shunter.errors import RequestError
from shunter.requests import TrainRequest
from tasks.plan import check_plan, given_tables
from tests.engine.synthetic import write_dataset


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


def test_a_plan_of_these_tables_is_handed_on_in_their_order(dataset: Any, tmp_path: Path) -> None:
    run = run_of(dataset, tmp_path)
    check_plan(run)
    assert given_tables(run.plan, table_names(dataset)) == tuple(
        GivenTable(kind="table_wise", processes=(place % 2,)) for place in range(4)
    )


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"single0": TablePlacement(rows=7, width=16, kind="row_wise")}, "its table 'single0' has 7 rows"),
        ({"other": TablePlacement(rows=7, width=16, kind="row_wise")}, "the model has no table 'other'"),
        ({"bag0": TablePlacement(rows=50, width=16, kind="row_wise", replicated_rows=9)}, "are only simulated"),
    ],
)
def test_a_plan_of_other_tables_is_refused(
    dataset: Any, tmp_path: Path, table: dict[str, TablePlacement], told: str
) -> None:
    with pytest.raises(RequestError, match=told):
        check_plan(run_of(dataset, tmp_path, **table))


def test_a_plan_of_another_family_is_refused(dataset: Any, tmp_path: Path) -> None:
    run = run_of(dataset, tmp_path)
    run.request = run.request.model_copy(update={"model": "deepfm"})
    with pytest.raises(RequestError, match="is for --model dlrm, not deepfm"):
        check_plan(run)


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
        check_plan(run)
        return
    with pytest.raises(RequestError, match="add --set embedding_dim=16"):
        check_plan(run)
