"""The search of a graph model: what comes first, what is fixed, what is beaten; and that it can be begun again."""

from dataclasses import fields

import pytest

from shunter.engine.overrides import Overrides
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.model_families import RANKING_MODELS
from shunter.models.graph import graph_spec
from shunter.models.graph.registry import check_graph_spec
from shunter.models.graph.spec import Range
from shunter.search.ranking import FEWEST_RIVALS, RankingSearch, RankingSpace


@pytest.mark.parametrize("family", RANKING_MODELS.names)
def test_the_defaults_come_first_and_every_point_makes_a_model(family: str) -> None:
    space = RankingSpace(family)
    search = RankingSearch(space, 8)
    points = []
    while len(points) < 8 and (point := search.ask()) is not None:
        points.append(point)
        check_graph_spec(space.build(point)[0])
        search.tell([0.1 * len(points)])
    assert space.build(points[0]) == (graph_spec(family), RankingHyperparameters(**graph_spec(family).learned_with))
    assert points[: len(space.first())] == space.first()
    assert len(points) == (1 if family == "popularity" else 8)
    for name, values in space.searched.items():
        tried = {point[name] for point in points}
        assert all(values.low <= one <= values.high if isinstance(values, Range) else one in values for one in tried)


@pytest.mark.parametrize("family", RANKING_MODELS.names)
def test_what_stands_beside_a_family_are_its_own_options(family: str) -> None:
    spec = type(graph_spec(family))
    own = {one.name for one in fields(spec)} | set(RankingHyperparameters.searched)
    assert set(spec.searched) <= own
    assert all(set(point) <= set(spec.searched) for point in spec.points)


def test_what_is_fixed_is_not_searched() -> None:
    overrides = Overrides(architecture={"layers": 1}, learning={"negatives": 8})
    space = RankingSpace("lightgcn", overrides)
    assert {"layers", "negatives"}.isdisjoint(space.searched)
    spec, rates = space.build(space.first()[0])
    assert (spec.to_dict()["layers"], rates.negatives) == (1, 8)
    every = {"regularization": 7.0, "dropout": 0.0, "user_exponent": 0.5}
    whole = RankingSearch(RankingSpace("ease", Overrides(architecture=every)), 5)
    assert whole.ask() == {}
    whole.tell([0.3])
    assert whole.ask() is None  # there is one point


def test_told_the_same_it_proposes_the_same() -> None:
    def points(seed: int) -> list[dict]:
        search, found = RankingSearch(RankingSpace("ials"), 9, seed=seed), []
        for number in range(9):
            found.append(search.ask())
            search.tell([0.01 * ((number * 7) % 5)])
        return found

    assert points(3) == points(3)
    assert points(3) != points(4)


def test_a_training_below_the_median_of_the_others_by_its_epoch_is_beaten() -> None:
    search = RankingSearch(RankingSpace("lightgcn"), 9)
    for told in ([0.1, 0.2, 0.3], [0.1, 0.3]):
        assert not search.is_beaten([0.0, 0.0])
        search.ask()
        search.tell(told)
    assert not search.is_beaten([])
    assert not search.is_beaten([0.0])  # too early
    assert search.is_beaten([0.0, 0.24])
    assert not search.is_beaten([0.26, 0.0])  # it was better once
    assert not search.is_beaten([0.0, 0.0, 0.0])  # one rival alone came so far


def test_a_point_that_comes_first_is_trained_to_its_end_however_late_it_rises() -> None:
    space = RankingSpace("ials")
    search, first = RankingSearch(space, 9), len(space.first())
    assert first > FEWEST_RIVALS, "so that the last of them has rivals enough"
    for _ in range(first):
        assert not search.is_beaten([0.0, 0.0])
        search.ask()
        search.tell([0.2, 0.2])
    assert search.is_beaten([0.0, 0.0])
