"""The super-net as a way of searching: it fits the space, keeps to its share of the budget, and goes on."""

from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
from mlflow import MlflowClient

from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.loop.evaluation import evaluate
from shunter.errors import RequestError
from shunter.extensions.nas.architecture_search import SupernetSchedule, SupernetTraining
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.extensions.nas.dnas import Dnas
from shunter.extensions.nas.supernet.network import Supernet
from shunter.extensions.nas.supernet.space import Coding, draw
from shunter.extensions.nas.supernet_search import (
    WEIGHTS,
    affordable_stages,
    architecture_of,
    learned_stages,
    learned_supernet,
    point_of,
    supernet_costs,
    supernet_space,
)
from shunter.hardware.types import Placement
from shunter.models.registry import check_spec
from shunter.requests import TrainRequest
from shunter.search.context import SearchContext
from shunter.search.job import SearchJob
from shunter.search.methods.registry import build_method
from shunter.search.protocol import BudgetLeft, Cost, Outcome, Parameters
from shunter.search.search import search
from shunter.search.space.settings import SearchSpace
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.engine.synthetic import write_dataset
from tests.extensions.nas.supernet.planted import Inherited

QUICK = SupernetSchedule(rounds=1, theta_steps=5)
LEFT = BudgetLeft(trials=20)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=900)


def space_of(dataset: Dataset) -> ArchitectureSpace:
    return ArchitectureSpace(
        features=dataset.features,
        embedding_dim=8,
        interactions=("dot", "fm"),
        bottom=((0, 8),),
        top=((8, 16), (0, 8)),
        dims={"single0": (4, 8), "bag0": (4, 8)},
        shares={"bag0": (1.0, 0.5)},
    )


def context_of(dataset: Dataset, directory: Path, cost: Cost | None = None, **changes: Any) -> SearchContext:
    values: dict[str, Any] = {
        "space": space_of(dataset),
        "study": optuna.create_study(),
        "dataset": dataset,
        "execution": Execution(batch_size=256),
        "schedule": Schedule(max_epochs=1),
        "directory": directory,
        "cost": cost,
    }
    return SearchContext(**{**values, **changes})


def asked(method: Dnas, count: int, left: BudgetLeft = LEFT) -> list[Parameters]:
    points = [method.ask(left) for _ in range(count)]
    return [point for point in points if point is not None]


def test_architectures_are_points_of_the_space(dataset: Dataset) -> None:
    space = space_of(dataset)
    coding = Coding(supernet_space(space), dataset.features)
    point = space.defaults()[0]
    for changes in ({}, {"bottom_0": 0}, {"top_1": 8, "share_bag0": 0.5, "dim_single0": 4, "interaction": "fm"}):
        wanted = {**point, **changes}
        spec, _ = space.build(wanted)
        architecture = next(
            one
            for one in map(coding.decode, _all_picks(coding))
            if space.build(point_of(one, space))[0] == spec and point_of(one, space) == wanted
        )
        assert coding.decode({**dict.fromkeys(coding.sizes, 0), **coding.encode(architecture)}) == architecture
        assert architecture_of(wanted, space) == architecture


def _all_picks(coding: Coding) -> list[dict[str, int]]:
    picks: list[dict[str, int]] = [{}]
    for name, size in coding.sizes.items():
        picks = [{**one, name: number} for one in picks for number in range(size)]
    return picks


@pytest.mark.parametrize("cost", ["parameter_bytes", "step_seconds"])
def test_new_points_of_the_space_are_asked_for(dataset: Dataset, tmp_path: Path, cost: Cost) -> None:
    context = context_of(dataset, tmp_path / "method", cost)
    space = space_of(dataset)
    points = asked(Dnas(context, QUICK), 12)
    specs = [space.build(point)[0] for point in points]
    assert len(set(specs)) == 12
    for point, spec in zip(points, specs, strict=True):
        check_spec(spec, dataset.features)
        assert all(point[name] in values for name, values in space.factors().items())


def test_the_default_comes_first_before_a_supernet_learns(dataset: Dataset, tmp_path: Path) -> None:
    def refuse() -> str | None:
        pytest.fail("a super-net is trained")

    method = Dnas(context_of(dataset, tmp_path, should_stop=refuse), QUICK)
    assert method.ask(LEFT) == space_of(dataset).defaults()[0]


def test_what_trials_came_to_has_a_say_in_what_is_drawn(dataset: Dataset, tmp_path: Path) -> None:
    """The super-net has learned next to nothing; the trials say that one interaction is bad and the other one good."""
    share = {}
    for bad in ("dot", "fm"):
        method = Dnas(context_of(dataset, tmp_path / bad), QUICK)
        first = asked(method, 8)
        for point in first:
            method.tell(point, Outcome(state="complete", validation_ne=0.9 if point["interaction"] == bad else 0.5))
        assert {point["interaction"] for point in first} == {"dot", "fm"}
        later = asked(method, 10)
        share[bad] = sum(point["interaction"] == bad for point in later) / len(later)
    assert max(share.values()) <= 0.2


def test_trials_have_a_say_in_a_front_too(dataset: Dataset, tmp_path: Path) -> None:
    """Of two interactions `dot` has more weights: where it is worse as well, it adds nothing to the front."""
    space, found = space_of(dataset), {}
    for is_better in (True, False):
        method = Dnas(context_of(dataset, tmp_path / str(is_better), "parameter_bytes"), QUICK)
        first = asked(method, 8)
        for point in first:
            costs: dict[Cost, float] = {"parameter_bytes": float(space.parameter_bytes(point))}
            ne = 0.5 if (point["interaction"] == "dot") == is_better else 0.9
            method.tell(point, Outcome(state="complete", validation_ne=ne, costs=costs))
        assert {point["interaction"] for point in first} == {"dot", "fm"}
        found[is_better] = [point["interaction"] for point in asked(method, 6)].count("dot")
    assert found[False] <= 1
    assert found[True] >= found[False] + 2


def test_the_heaviest_weight_gives_smaller_architectures(dataset: Dataset, tmp_path: Path) -> None:
    schedule = SupernetSchedule(rounds=1, theta_steps=30)
    space, context = space_of(dataset), context_of(dataset, tmp_path, "parameter_bytes")
    coding, stages = Coding(supernet_space(space), dataset.features), learned_stages(context, LEFT, schedule)
    light, heavy = (
        [space.parameter_bytes(point_of(coding.decode(draw(stage.theta, generator)), space)) for _ in range(20)]
        for stage, generator in ((stages[0], torch.Generator()), (stages[-1], torch.Generator()))
    )
    assert [stage.weight for stage in stages] == list(WEIGHTS)
    assert sum(heavy) < sum(light)


def test_a_search_that_goes_on_does_not_train_the_supernet_again(dataset: Dataset, tmp_path: Path) -> None:
    def refuse() -> str | None:
        pytest.fail("the super-net is trained again")

    def told(method: Dnas, point: Parameters) -> None:
        costs: dict[Cost, float] = {"parameter_bytes": float(space.parameter_bytes(point))}
        method.tell(point, Outcome(state="complete", validation_ne=0.8 + 0.02 * point["top_0"] / 16, costs=costs))

    space, method, first = space_of(dataset), Dnas(context_of(dataset, tmp_path, "parameter_bytes"), QUICK), []
    for _ in range(6):
        first += asked(method, 1)
        told(method, first[-1])
    again = Dnas(context_of(dataset, tmp_path, "parameter_bytes", should_stop=refuse), QUICK)
    for point in first[:3]:
        told(again, point)
    later = []
    for _ in range(3):
        later += asked(again, 1)
        told(again, later[-1])
    assert later == first[3:]


def test_the_supernet_can_be_asked_what_it_has_learned_when_it_has_ended(dataset: Dataset, tmp_path: Path) -> None:
    context, space = context_of(dataset, tmp_path / "method"), space_of(dataset)
    schedule = SupernetSchedule(warmup_epochs=30, rounds=1, theta_steps=5)
    learned_stages(context, LEFT, schedule)
    learned = learned_supernet(context, schedule)
    architecture = architecture_of(space.defaults()[0], space)
    untrained = Supernet(supernet_space(space), dataset.features)
    ne = [
        evaluate(Inherited(network, architecture), dataset, "train", context.execution).metrics.ne
        for network in (learned, untrained)
    ]
    assert ne[0] < ne[1] - 0.1


def test_the_supernet_takes_more_and_smaller_steps_than_a_trial_by_the_rates_for_them(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[Execution, Hyperparameters]] = []

    def noted(
        network: Supernet, data: Dataset, rates: Hyperparameters, execution: Execution, *rest: Any, **more: Any
    ) -> SupernetTraining:
        built.append((execution, rates))
        return SupernetTraining(network, data, rates, execution, *rest, **more)

    monkeypatch.setattr("shunter.extensions.nas.supernet_search.SupernetTraining", noted)
    for batch_size in (256, 8_192):
        context = context_of(dataset, tmp_path / str(batch_size), execution=Execution(batch_size=batch_size))
        supernet_costs(context)
    (small, usual), (large, scaled) = built
    assert (small.batch_size, large.batch_size) == (256, 1_024)
    assert scaled.dense_learning_rate == pytest.approx(usual.dense_learning_rate / 8_192**0.5 * 1_024**0.5)


def test_an_interrupted_supernet_goes_on(dataset: Dataset, tmp_path: Path) -> None:
    expected = asked(Dnas(context_of(dataset, tmp_path / "whole", "parameter_bytes"), QUICK), 6)
    steps = iter([None] * 16)  # past the warm-up and the first weights

    def interrupt() -> str | None:
        if next(steps, "end") == "end":
            raise KeyboardInterrupt
        return None

    with pytest.raises(KeyboardInterrupt):
        asked(Dnas(context_of(dataset, tmp_path / "cut", "parameter_bytes", should_stop=interrupt), QUICK), 2)
    assert (tmp_path / "cut" / "supernet.json").exists()
    assert asked(Dnas(context_of(dataset, tmp_path / "cut", "parameter_bytes"), QUICK), 6) == expected


def test_a_search_trains_what_is_drawn_and_keeps_theta(dataset: Dataset, tracking_root: Path, tmp_path: Path) -> None:
    request = TrainRequest(search_method="dnas", trials=2, max_epochs=1)  # pyright: ignore[reportArgumentType]
    parent = start_run_tree(request, dataset)
    placement = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=256)
    result = search(
        SearchJob(
            dataset=dataset,
            request=request,
            placement=placement,
            directory=tmp_path,
            parent_run_id=parent,
            space=space_of(dataset),
        )
    )
    assert result.complete_trials + result.pruned_trials == 2
    client = MlflowClient(tracking_uri())
    assert {one.path for one in client.list_artifacts(parent, "supernet")} == {
        "supernet/theta.png",
        "supernet/supernet.json",
    }
    assert len(client.get_metric_history(parent, "supernet.theta_ne")) == SupernetSchedule().rounds


def test_without_time_it_still_proposes(dataset: Dataset, tmp_path: Path) -> None:
    points = asked(Dnas(context_of(dataset, tmp_path, "parameter_bytes"), QUICK), 3, BudgetLeft(seconds=0.0))
    assert len(points) == 3


def test_another_space_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    context = context_of(dataset, tmp_path, space=SearchSpace.for_dataset(dataset))
    with pytest.raises(RequestError, match="architecture"):
        build_method("dnas", context)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        (float("inf"), [(0.0, 3), *((weight, 1) for weight in WEIGHTS[1:])]),
        (0.0, [(0.0, 1)]),
        (2.0, [(0.0, 1), (WEIGHTS[-1], 1)]),
        (6.0, [(0.0, 3), (WEIGHTS[2], 1), (WEIGHTS[3], 1), (WEIGHTS[5], 1)]),
    ],
)
def test_stages_are_spread_over_the_time_there_is(rounds: float, expected: list[tuple[float, int]]) -> None:
    assert affordable_stages(rounds, 3, WEIGHTS) == expected
