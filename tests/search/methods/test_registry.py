"""Methods by name, and what those of Optuna draw from a study."""

from dataclasses import replace
from pathlib import Path
from random import Random
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
from shunter.search.space.architecture import ArchitectureSpace
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


@pytest.mark.parametrize("name", ["tpe", "random", "nsga2"])
def test_no_architecture_is_drawn_twice_while_there_is_another(context: SearchContext, name: str) -> None:
    space = architectures(context.dataset, top=((8, 0), (8, 0)))  # 12 points of 9 architectures
    context = replace(context, space=space)
    specs = []
    for _ in range(9):
        point = build_method(name, context).ask(BudgetLeft())
        assert point is not None
        specs.append(space.build(point)[0])
        trial = record(context.study, point)
        space.suggest(trial)
        outcome = Outcome(state="complete", validation_ne=0.5, costs={"parameter_bytes": 1.0})
        tell(context.study, trial, outcome, context.cost)
    assert len(set(specs)) == 9
    assert build_method(name, context).ask(BudgetLeft()) is not None  # all were tried: one of them again


def test_nsga2_breeds_from_the_front(context: SearchContext) -> None:
    """Of eight trials the four with one interaction are better in NE and in bytes: they alone are parents."""
    space, chance = architectures(context.dataset, top=((8, 16, 24, 32),) * 4), Random(0)
    context = replace(context, space=space)
    default = space.defaults()[0]
    tops = [{f"top_{layer}": chance.choice((8, 16, 24, 32)) for layer in range(4)} for _ in range(7)]
    others = [{**default, **top, "interaction": ("fm", "cross")[place % 2]} for place, top in enumerate(tops)]
    for point in (default, *others):
        trial = record(context.study, point)
        space.suggest(trial)
        figure = 0.5 if point["interaction"] == "fm" else 0.9
        outcome = Outcome(state="complete", validation_ne=figure, costs={"parameter_bytes": figure})
        tell(context.study, trial, outcome, context.cost)
    drawn = [build_method("nsga2", replace(context, seed=seed)).ask(BudgetLeft()) for seed in range(40)]
    assert sum(point["interaction"] == "fm" for point in drawn if point) >= 28  # the others by a mutation
    assert len({tuple(point.values()) for point in drawn if point}) > 20


def architectures(dataset: Dataset, top: tuple[tuple[int, ...], ...]) -> ArchitectureSpace:
    return ArchitectureSpace(
        features=dataset.features, embedding_dim=8, interactions=("dot", "cross", "fm"), bottom=((8,),), top=top
    )
