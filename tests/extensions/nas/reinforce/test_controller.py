"""The controller as a search uses it: asked for several points at a time, interrupted, and in a space with an end."""

from functools import cache

import numpy as np
import pytest

from shunter.extensions.nas.reinforce.controller import Controller
from shunter.extensions.nas.reinforce.experience import Actions
from shunter.search.protocol import BudgetLeft, Outcome, Parameters
from tests.extensions.nas.reinforce.planted import ACTIONS, history_of, outcome_at, tables

LEFT = BudgetLeft()
TABLE, PAST = tables(3)


def controller_of(folder=None, *, is_warm: bool = True, seed: int = 0) -> Controller:
    past = [history_of(PAST, 0, 0.25)] if is_warm else []
    return Controller(ACTIONS, seed=seed, past=past, directory=folder, horizon=40)


def asked(controller: Controller) -> Parameters:
    point = controller.ask(LEFT)
    assert point is not None
    return point


def played(controller: Controller, count: int) -> list[Parameters]:
    points = []
    for _ in range(count):
        points.append(asked(controller))
        controller.tell(points[-1], outcome_at(TABLE, points[-1]))
    return points


@cache
def whole_search(*, is_warm: bool) -> list[Parameters]:
    """What one search asks for that nothing interrupts."""
    return played(controller_of(is_warm=is_warm), 24)


@pytest.mark.parametrize("is_warm", [False, True])
def test_the_same_seed_asks_for_the_same_points(is_warm):
    first = played(controller_of(is_warm=is_warm), 20)

    assert first == whole_search(is_warm=is_warm)[:20]
    assert first != played(controller_of(is_warm=is_warm, seed=1), 20)


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("told", [3, 8, 19])
def test_a_search_that_was_killed_goes_on_as_it_would_have(tmp_path, is_warm, told):
    before = played(controller_of(tmp_path, is_warm=is_warm), told)

    again = controller_of(tmp_path, is_warm=is_warm)
    for point in before:
        again.tell(point, outcome_at(TABLE, point))

    assert before + played(again, 24 - told) == whole_search(is_warm=is_warm)
    assert len(again.curve) == 3


def test_a_damaged_state_is_learnt_anew_from_the_trials(tmp_path, caplog):
    before = played(controller_of(tmp_path), 9)
    (tmp_path / "policy.safetensors").write_bytes(b"damaged")

    again = controller_of(tmp_path)
    for point in before:
        again.tell(point, outcome_at(TABLE, point))

    assert all(point not in before for point in played(again, 4))
    assert "damaged" in caplog.text


def test_points_on_their_way_are_not_asked_for_again():
    controller = controller_of()

    points = [asked(controller) for _ in range(20)]

    assert len({tuple(point.values()) for point in points}) == 20


def test_a_space_ends_after_each_of_its_models_was_asked_for_once():
    factors = {"first": (0, 1, 2), "second": (0, 1, 2)}
    actions = Actions(factors, identity=lambda point: frozenset(point.values()))  # the order makes no difference
    controller = Controller(actions, seed=0)

    models = []
    while (point := controller.ask(LEFT)) is not None:
        models.append(frozenset(point.values()))
        controller.tell(point, Outcome(state="complete", validation_ne=0.5 + sum(point.values()) / 100))

    assert len(models) == len(set(models)) == 6


def test_defaults_come_first_and_nothing_that_does_not_fit_is_asked_for():
    factors = {"rows": (10, 100), "dim": (4, 16, 64)}
    actions = Actions(factors, bytes_of=lambda point: point["rows"] * point["dim"], most_bytes=700)
    controller = Controller(actions, seed=0, defaults=[{"rows": 10, "dim": 64}])

    points = []
    while (point := controller.ask(LEFT)) is not None:
        points.append(point)

    assert points[0] == {"rows": 10, "dim": 64}
    assert sorted(point["rows"] * point["dim"] for point in points) == [40, 160, 400, 640]


def test_failed_trainings_are_learnt_from_too():
    """The value 1 of the first factor always fails: after a while it is hardly asked for."""
    actions = Actions({"first": (0, 1), "second": tuple(range(16)), "third": tuple(range(16))})
    controller = Controller(actions, seed=0)
    failed = []

    for _ in range(96):
        point = asked(controller)
        failed.append(point["first"] == 1)
        ne = None if failed[-1] else 0.8
        controller.tell(point, Outcome(state="failed" if failed[-1] else "complete", validation_ne=ne))

    assert np.mean(failed[:16]) > 0.25
    assert np.mean(failed[-32:]) < 0.15


def test_after_many_points_below_the_baseline_it_returns_to_the_best_one():
    actions = Actions({name: tuple(range(4)) for name in "abcdef"})
    default = dict.fromkeys("abcdef", 0)
    controller = Controller(actions, seed=0, defaults=[default])

    for _ in range(13):  # the default is by far the best
        point = asked(controller)
        controller.tell(point, Outcome(state="complete", validation_ne=0.5 if point == default else 0.9))

    assert sum(value != 0 for value in asked(controller).values()) == 1


def test_the_costs_of_a_search_are_weighed():
    """NE is the same everywhere, so that only the bytes distinguish the points."""
    actions = Actions({"width": (1, 10, 100, 1000), "other": tuple(range(8)), "third": tuple(range(8))})
    controller = Controller(actions, seed=0, cost="parameter_bytes")

    widths = []
    for _ in range(64):
        point = asked(controller)
        widths.append(point["width"])
        outcome = Outcome(state="complete", validation_ne=0.8, costs={"parameter_bytes": float(point["width"])})
        controller.tell(point, outcome)

    assert np.mean(np.log(widths[-24:])) < np.mean(np.log(widths[:24]))
