"""The minutes of a search are those of all that is trained for it, over several attempts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.stopping import Budget, StopKind, StopLimit, StopReason
from shunter.hardware.meters.meter import EnergyMeter
from shunter.requests import TrainRequest
from shunter.search.minutes import BASELINES_SHARE, MOST_OVERHEAD, Minutes, unlimited
from tests.engine.reasons import HandClock

FIVE_MINUTES = StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, {"minutes": 5.0})


def test_trials_and_the_steps_around_them_share_the_minutes() -> None:
    minutes = Minutes.of(
        TrainRequest(search_minutes=5).search, HandClock(1e9, trials=100.0, baselines=50.0, members=120)
    )
    assert minutes.around == {"baselines": 50.0, "members": 120.0}
    assert minutes.left_seconds == minutes.left_for_trials_seconds == 30.0
    assert minutes.exhausted() is None
    assert minutes.trials_exhausted() is None
    assert [minutes.room_for(seconds) for seconds in (10.0, 15.5, 31.0, 58.0, 61.0)] == [3, 2, 1, 1, 0]


def test_what_is_used_up_ends_trials_and_members_alike() -> None:
    clock = HandClock(trials=100.0)
    minutes = Minutes.of(TrainRequest(search_minutes=5).search, clock)
    with clock.counting("members"):
        clock.now += 200.0
        assert minutes.exhausted() == minutes.trials_exhausted() == FIVE_MINUTES
        assert minutes.room_for(1.0) == 0


def test_baselines_have_their_share() -> None:
    clock = HandClock(baselines=300 * BASELINES_SHARE)
    share = StopReason(StopKind.SHARE, StopLimit.TIME, {"share": BASELINES_SHARE, "minutes": 5.0})
    assert Minutes(clock, 300.0).baselines_ended() == share
    assert Minutes(clock, 301.0).baselines_ended() is None


def test_trials_end_as_early_as_the_trainings_after_them_need() -> None:
    clock = HandClock(trials=600.0)
    minutes = Minutes(clock, 1200.0)
    minutes.reserve(540.0)
    assert minutes.trials_exhausted() is None
    assert (minutes.left_for_trials_seconds, minutes.left_seconds) == (60.0, 600.0)
    minutes.reserve(10_000)  # the trials keep half
    details = {"minutes": 20, "reserved_minutes": 10}
    assert minutes.trials_exhausted() == StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, details)
    assert minutes.exhausted() is None


def test_a_limit_of_the_request_ends_trials_and_members_before_the_minutes() -> None:
    clock = HandClock(before=10.0)
    limit = StopReason(StopKind.LIMIT, StopLimit.TIME, {"hours": 60 / 3600})
    budget = Budget(clock=clock, meter=EnergyMeter([], sample=False), max_seconds=60.0)
    minutes = Minutes.of(TrainRequest(search_minutes=5).search, clock, of_command=True, budget=budget)
    minutes.reserve_seconds(20.0, "")
    minutes.reserve(1e9)
    assert (minutes.left_seconds, minutes.left_for_trials_seconds, budget.ending_seconds) == (30.0, 15.0, 20.0)
    with clock.counting("trials"):
        clock.now += 15.0
        assert minutes.trials_exhausted() == limit
        assert minutes.exhausted() is None
        clock.now += 15.0
        assert minutes.exhausted() == minutes.command_exhausted() == limit


def test_without_minutes_there_is_room() -> None:
    minutes = Minutes.of(TrainRequest(trials=9).search, HandClock(members=1e9))
    minutes.reserve(60.0)  # there is nothing to leave
    assert math.isinf(minutes.room_for(1e9))
    assert math.isinf(minutes.left_for_trials_seconds)
    assert math.isinf(minutes.left_of_command_seconds)
    assert (minutes.exhausted(), minutes.trials_exhausted(), minutes.baselines_ended()) == (None, None, None)
    assert minutes.used_share_of_trials == 0.0
    assert math.isinf(unlimited().left_seconds)


def test_the_minutes_are_those_of_the_command_and_its_end_is_set_aside() -> None:
    clock = HandClock(before=40.0)
    minutes = Minutes(clock, 300.0, of_command=True)
    minutes.reserve_seconds(20.0, "by one earlier run")
    clock.now += 5.0
    assert minutes.left_for_trials_seconds == 300 - 45 - 20
    minutes.reserve(1e9)  # seeds have at most half of what is left beside start and end
    assert minutes.reserved_seconds == (300 - 45 - 20) / 2
    with clock.counting("trials"):
        clock.now += 100.0
    clock.now += 10.0  # between the trials and what follows
    with clock.counting("members"):
        assert minutes.command_seconds == 55.0
        assert minutes.left_seconds == 300 - 55 - 100 - 20
        assert minutes.left_of_command_seconds == 300 - 155 - 20


@given(most=st.floats(1, 1e5), command=st.floats(0, 1e6), ending=st.floats(0, 1e6), trials=st.floats(0, 1e5))
def test_trials_have_half_of_the_minutes_however_long_start_and_end_take(
    most: float, command: float, ending: float, trials: float
) -> None:
    minutes = Minutes(HandClock(command, trials=trials), most, of_command=True)
    minutes.reserve_seconds(ending, "")
    spared = min(command + ending, MOST_OVERHEAD * most)
    assert minutes.left_seconds == pytest.approx(max(0.0, most - spared - trials), abs=1e-6)
