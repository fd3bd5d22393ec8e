"""What the samplers draw from a space of architectures, in which different points may be the same architecture."""

from dataclasses import replace
from random import Random

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.search.context import SearchContext
from shunter.search.methods.registry import build_method
from shunter.search.protocol import BudgetLeft, Outcome
from shunter.search.study.storage import record, tell
from tests.search.methods.test_registry import context, dataset

__all__ = ["context", "dataset"]  # fixtures


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
