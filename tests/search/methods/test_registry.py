"""Methods by name, and what those of Optuna draw from a study."""

from pathlib import Path
from typing import Any

import optuna
import pytest

from engine.config import Execution, Schedule
from engine.data.dataset import Dataset
from search.context import SearchContext
from search.methods.registry import METHODS, build_method
from search.protocol import BudgetLeft, Outcome
from search.space.settings import SearchSpace
from search.study.address import storage_address
from search.study.storage import open_study, record, tell
from shunter.errors import RequestError
from shunter.requests import SearchMethodName
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


def test_every_name_of_the_request_is_a_method() -> None:
    assert set(METHODS) == set(SearchMethodName)


def test_an_unknown_method_is_answered_with_the_nearest(context: SearchContext) -> None:
    with pytest.raises(RequestError, match="'randm' is unknown: use 'random', or another of"):
        build_method("randm", context)


@pytest.mark.parametrize("name", ["tpe", "random"])
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
