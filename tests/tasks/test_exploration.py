"""An exploration is bounded, and told to the search as the placement of one of its trials."""

from typing import Any, cast

from shunter.engine.stopping import StopKind, StopLimit, StoppedError, StopReason
from shunter.planner.decide import Decision
from shunter.search.study.pair import Pairing
from shunter.tasks.run_context import RunContext, exploration_limit
from shunter.tracking.evidence import ending_of
from tests.engine.reasons import HandClock
from tests.planner.test_explore import after, by_plan, night

TOO_LONG = StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": 2.0})


def exploration() -> Decision:
    decision = after([night(by_plan(), number) for number in range(3)])
    assert decision.is_exploration
    return decision


def run_of(decision: Decision) -> RunContext:
    return cast("Any", RunContext)(None, None, None, decision, *[None] * 4)


def test_its_time_counts_from_the_first_check_on() -> None:
    clock, decision = HandClock(before=500.0), exploration()
    assert decision.exploration is not None
    limit = exploration_limit(clock, decision)
    assert limit is not None
    clock.now += 1e6  # baselines were trained meanwhile
    assert limit() is None
    clock.now += 3600 * decision.exploration.stop_hours + 1
    reason = limit()
    assert reason == TOO_LONG
    assert ending_of(error=StoppedError("It took too long.", TOO_LONG)).limit == "early_stop"
    assert ending_of(reason=TOO_LONG).limit == "early_stop"
    assert exploration_limit(clock, by_plan()) is None


def test_only_trial_explores_with_the_best_known_behind_it() -> None:
    decision = exploration()
    assert decision.exploration is not None
    seconds = 3600 * decision.exploration.stop_hours
    assert run_of(decision).pairing == Pairing(by_plan().placement, 2.0, seconds)
    assert run_of(by_plan()).pairing is None


def test_at_another_placement_nothing_is_explored() -> None:
    elsewhere = run_of(exploration()).at(by_plan().placement)
    assert elsewhere.decision.placement == by_plan().placement
    assert elsewhere.pairing is None
