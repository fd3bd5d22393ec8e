"""Methods by name, and what those of Optuna draw from a study."""

from pathlib import Path
from typing import Any

import optuna
import pytest

from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.errors import UnknownNameError
from shunter.flows.command import start
from shunter.requests import SEARCH_METHODS, SearchSpaceName, TrainRequest
from shunter.search.context import SearchContext
from shunter.search.methods.registry import build_method
from shunter.search.protocol import BudgetLeft, Outcome
from shunter.search.space.settings import SearchSpace
from shunter.search.study.address import storage_address
from shunter.search.study.storage import open_study, record, tell
from tests.engine.synthetic import write_dataset

SPACE = SearchSpace()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=200)


@pytest.fixture
def context(dataset: Dataset, tmp_path: Path) -> SearchContext:
    return SearchContext(
        space=SPACE,
        study=open_study(storage_address(tmp_path, None), SPACE, cost="parameter_bytes"),
        dataset=dataset,
        execution=Execution(),
        schedule=Schedule(),
        directory=tmp_path / "method",
        cost="parameter_bytes",
        trials=12,
    )


def test_methods_stand_in_the_order_in_which_they_are_offered() -> None:
    assert SEARCH_METHODS.names == ("tpe", "random", "nsga2", "dnas", "rl", "transfer")
    assert TrainRequest.model_json_schema()["$defs"]["SearchRequest"]["properties"]["search_method"]["enum"] == [
        *SEARCH_METHODS.names
    ]


def test_an_unknown_method_is_answered_with_the_nearest(context: SearchContext) -> None:
    with pytest.raises(UnknownNameError) as refused:
        build_method("randm", context)
    assert (refused.value.role, refused.value.nearest) == ("search method", ("random",))


def test_a_command_refuses_an_unknown_method_before_it_reads_data() -> None:
    with pytest.raises(UnknownNameError):
        start._check(TrainRequest(data="nowhere", search_method="luck"))


def test_a_request_that_names_a_method_of_another_distribution_can_be_read_without_it() -> None:
    request = TrainRequest(search_method="luck", search_minutes=5)
    assert (request.search.space, request.search.is_by_minutes_alone) == (SearchSpaceName.SETTINGS, True)


@pytest.mark.parametrize("name", ["tpe", "random", "nsga2"])
def test_the_default_comes_first_and_no_draw_leaves_a_trace(context: SearchContext, name: str) -> None:
    method = build_method(name, context)
    assert method.ask(BudgetLeft()) == SPACE.default()
    assert context.study.trials == []
    drawn: list[Any] = []
    for value in range(12):
        point = method.ask(BudgetLeft())
        assert point is not None
        assert point == build_method(name, context).ask(BudgetLeft())  # resumed, it goes on as it would have
        trial = record(context.study, point)
        assert SPACE.suggest(trial) == point
        state = "pruned" if value % 4 == 3 else "complete"
        costs = {"parameter_bytes": 1.0 - value / 12}
        tell(context.study, trial, Outcome(state=state, validation_ne=float(value), costs=costs), context.cost)  # type: ignore[arg-type]
        drawn.append(point)
    assert all(drawn.count(point) == 1 for point in drawn)
    assert optuna.trial.TrialState.PRUNED in {trial.state for trial in context.study.trials}
