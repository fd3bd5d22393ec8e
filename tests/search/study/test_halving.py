"""Who is stopped early: the order at a rung against brute force, and rungs that survive in the study."""

import math
from itertools import pairwise

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.search.study.halving import RUNG, Halving, Point, best_first, checks_for, passes_rung

points = st.lists(
    st.tuples(st.integers(0, 6).map(float), st.integers(0, 6).map(float)), min_size=1, max_size=9, unique=True
)


def rank(points: list[Point], one: Point) -> int:
    """The number of its front by the definition: the longest chain of points that dominate one another up to it."""
    above = [other for other in points if other != one and all(a <= b for a, b in zip(other, one, strict=True))]
    return 1 + max((rank(above, other) for other in above), default=-1)


@settings(deadline=None)  # the machine may be busy
@given(points)
def test_no_point_comes_before_one_of_an_earlier_front(points: list[Point]) -> None:
    order = best_first(points)
    assert sorted(order) == list(range(len(points)))
    ranks = [rank(points, points[index]) for index in order]
    assert ranks == sorted(ranks)


@settings(deadline=None)
@given(points)
def test_within_a_front_the_next_is_farthest_from_those_before(points: list[Point]) -> None:
    front = [point for point in points if rank(points, point) == 0]
    chosen = [points[index] for index in best_first(points)][: len(front)]
    assert chosen[0] == min(front)
    scales = [max(axis) - min(axis) or 1.0 for axis in zip(*front, strict=True)]

    def gap(one: Point, before: list[Point]) -> float:
        scaled = [[(a - b) / by for a, b, by in zip(one, other, scales, strict=True)] for other in before]
        return min(math.hypot(*differences) for differences in scaled)

    for position in range(1, len(front)):
        before = chosen[:position]
        assert gap(chosen[position], before) == pytest.approx(max(gap(one, before) for one in set(front) - set(before)))


@settings(deadline=None)
@given(points)
def test_of_points_in_any_order_a_third_or_more_passes(points: list[Point]) -> None:
    """The best third of those who were there passes, and the first to arrive whatever it reached."""
    passed = [passes_rung(point, points[:position]) for position, point in enumerate(points)]
    assert passed[0]
    for position, point in enumerate(points):
        here = points[: position + 1]
        best = [here[index] for index in best_first(here)][: max(1, len(here) // 3)]
        assert passed[position] == (point in best)


def test_of_one_objective_the_order_is_that_of_the_values() -> None:
    values = [(3.0,), (1.0,), (2.0,)]
    assert best_first(values) == [1, 2, 0]
    assert passes_rung((0.5,), values)
    assert not passes_rung((1.5,), values)


def test_small_data_is_compared_between_epochs_only() -> None:
    assert checks_for(100_000) == ()
    assert checks_for(200_000) == (1 / 3,)
    assert checks_for(1_000_000) == (1 / 9, 1 / 3)
    assert all(a < b for a, b in pairwise(checks_for(10**9)))


def test_rungs_of_two_objectives_are_kept_in_the_study() -> None:
    """Each search object stands for a process of its own: all that it knows of the others is in the study."""
    study = optuna.create_study(directions=["minimize", "minimize"])
    trials = [study.ask() for _ in range(4)]
    costs = {0: (0.9, 5.0), 1: (0.8, 4.0), 2: (0.95, 6.0), 3: (0.99, 1.0)}
    beaten = [Halving(study, (1 / 3,), max_epochs=3).is_beaten(trial, 1 / 3, *costs[trial.number]) for trial in trials]
    assert beaten == [False, False, True, True]  # the last is on the front, where one of four passes: the lowest NE
    assert study.trials[1].user_attrs == {f"{RUNG}0": (0.8, 4.0)}
    halving = Halving(study, (1 / 3,), max_epochs=3)
    assert not halving.is_beaten(trials[0], 1.0, 0.85, 5.0)
    assert not halving.is_beaten(trials[1], 1.0, 0.75, 4.0)
    assert halving.is_beaten(trials[2], 1.0, 0.9, 6.0)
    assert not halving.is_beaten(trials[2], 3.0, 0.9, 6.0)  # after the last epoch there is nothing to save
    assert set(study.trials[0].user_attrs) == {f"{RUNG}0", f"{RUNG}1"}


def test_one_objective_is_reported_in_units_of_the_smallest_share() -> None:
    study = optuna.create_study(direction="minimize")
    halving = Halving(study, (1 / 9, 1 / 3), max_epochs=2)
    for value in (0.5, 0.4, 0.9, 0.91, 0.92, 0.93):
        trial = study.ask()
        for passes in (0.111, 0.34, 1.0):
            if halving.is_beaten(trial, passes, value, None):
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            assert not halving.is_beaten(trial, 2.0, value, None)
            assert not halving.is_beaten(trial, 2.0, value, None)  # what is there is not reported twice
            study.tell(trial, value)
    assert list(study.trials[0].intermediate_values) == [1, 3, 9, 18]
    assert any(trial.state.name == "PRUNED" for trial in study.trials)
    assert study.best_value == 0.4


def test_trainings_that_end_earlier_are_compared_with_their_like_and_hold_no_other_up() -> None:
    study = optuna.create_study(direction="minimize")

    def of(epochs: int) -> Halving:
        return Halving(study, (), max_epochs=9, own_epochs=epochs)

    short, long, worse, better, other = (study.ask() for _ in range(5))
    assert not of(3).is_beaten(short, 1.0, 0.5, None), "the first of its kind"
    assert not of(9).is_beaten(long, 1.0, 0.9, None), "which those that go on are not measured by"
    assert of(3).is_beaten(worse, 1.0, 0.6, None)
    assert not of(3).is_beaten(better, 1.0, 0.4, None)
    assert not of(3).is_beaten(worse, 3.0, 0.6, None), "after its last pass there is nothing to save"
    assert not of(2).is_beaten(other, 1.0, 0.7, None), "of another length"
    assert study.trials[short.number].intermediate_values == {}


def test_of_two_objectives_too_they_are_compared_with_their_like() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"])
    short, long, worse = (study.ask() for _ in range(3))
    assert not Halving(study, (), max_epochs=9, own_epochs=3).is_beaten(short, 1.0, 0.5, 1.0)
    assert not Halving(study, (), max_epochs=9, own_epochs=9).is_beaten(long, 1.0, 0.9, 2.0)
    assert Halving(study, (), max_epochs=9, own_epochs=3).is_beaten(worse, 1.0, 0.6, 2.0)
