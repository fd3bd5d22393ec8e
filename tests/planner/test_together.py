"""How many trainings at a time: by what each takes with its part of the machine, within memory and energy."""

from typing import Any

import pytest

from shunter.planner.assessment import Candidate
from shunter.planner.decide import Decision, decide
from shunter.planner.rank.totals import Terms
from shunter.planner.together import (
    MOST_TRIALS,
    SHORTEST_SEARCH_SECONDS,
    START_SECONDS,
    trainings_at_a_time,
    trials_at_a_time,
)
from shunter.requests import Limits
from tests.planner.test_decide import TEN_EPOCHS, candidate


def decided(one_seconds: float, two_seconds: float, objective: str = "time", memory_gib: float = 1) -> Decision:
    """An epoch on one thread of 10 W, and on two of 20 W."""
    both = [
        candidate(512, threads=threads, seconds=seconds, joules=10 * threads * seconds, memory_gib=memory_gib)
        for threads, seconds in ((1, one_seconds), (2, two_seconds))
    ]
    return decide(both, Terms.of(Limits(), objective, TEN_EPOCHS))


def two_threads(decision: Decision) -> Candidate:
    return next(row.candidate for row in decision.table if row.candidate.placement.threads == 2)


@pytest.mark.parametrize(
    ("one", "two", "objective", "count"),
    [
        pytest.param(100, 90, "time", 2, id="a second thread hardly helps one training"),
        pytest.param(100, 50, "time", 1, id="a second thread helps as much as a second training"),
        pytest.param(100, 51, "energy", 1, id="nearly so, and the gain of energy is none"),
        pytest.param(100, 90, "energy", 2, id="one thread each takes less energy"),
    ],
)
def test_trainings_are_side_by_side_where_that_is_better(one: float, two: float, objective: str, count: int) -> None:
    decision = decided(one, two, objective)
    found = trainings_at_a_time(decision, two_threads(decision).placement, 4, epochs=3, most=2)
    assert found.chosen.count == count
    alone, together = found.tried
    assert alone.seconds == pytest.approx(4 * 3 * two)
    assert together.seconds == pytest.approx(2 * 3 * one + START_SECONDS)
    assert together.joules == pytest.approx(4 * 3 * 10 * one)


def test_what_has_no_room_or_takes_too_much_energy_is_left() -> None:
    decision = decided(100, 90, memory_gib=9)  # of 16
    placement = two_threads(decision).placement
    assert trainings_at_a_time(decision, placement, 4, epochs=3, most=2).chosen.count == 1
    decision = decided(100, 90)
    found = trainings_at_a_time(decision, placement, 4, epochs=3, most=2, left_joules=1.0)
    assert found.chosen.count == 1  # neither keeps it: the limit ends the training, not the choice
    assert trainings_at_a_time(decision, placement, 1, epochs=3, most=2).tried == ()
    assert trainings_at_a_time(decision, placement, 4, epochs=3, most=1).chosen.count == 1


def test_without_a_candidate_for_one_training_there_is_nothing_to_compare() -> None:
    decision = decided(100, 90)
    placement = two_threads(decision).placement
    rows = tuple(row for row in decision.table if row.candidate.placement.threads == 1)
    only_one_thread = decision.model_copy(update={"table": rows})
    found = trainings_at_a_time(only_one_thread, placement, 4, epochs=3, most=2)
    assert (found.chosen.count, found.tried) == (1, ())


MINUTES = SHORTEST_SEARCH_SECONDS


def searched(epoch_seconds: dict[int, float], memory_gib: float = 1, **placement: Any) -> Decision:
    """Chosen is the fastest number of threads of those given."""
    candidates = [
        candidate(512, threads=threads, seconds=seconds, memory_gib=memory_gib)
        for threads, seconds in epoch_seconds.items()
    ]
    decision = decide(candidates, Terms.of(Limits(), "time", TEN_EPOCHS))
    return decision.model_copy(update={"placement": decision.placement.model_copy(update=placement)})


@pytest.mark.parametrize(
    ("epoch_seconds", "cores", "count"),
    [
        pytest.param({1: 90, 2: 100}, 2, 2, id="one thread is best, and a core idle"),
        pytest.param({1: 100, 2: 90}, 2, 2, id="a second thread hardly helps one trial"),
        pytest.param({1: 100, 2: 60}, 2, 1, id="nearly as much as a second trial"),
        pytest.param({1: 400, 2: 200, 4: 100}, 4, 1, id="one takes all"),
        pytest.param({1: 400, 2: 110, 4: 100}, 4, 2, id="two threads each"),
        pytest.param({1: 90, 2: 100, 4: 110}, 16, MOST_TRIALS, id="more would hardly learn from each other"),
        pytest.param({1: 90}, 1, 1, id="there is one core"),
        pytest.param({2: 90}, 2, 1, id="nothing says what one thread takes"),
    ],
)
def test_as_many_trials_run_at_a_time_as_train_the_most_in_the_same_minutes(
    epoch_seconds: dict[int, float], cores: int, count: int
) -> None:
    advice = trials_at_a_time(searched(epoch_seconds), cores, MINUTES)
    assert advice.chosen.count == count
    assert advice.reason.startswith("One trial at a time" if count == 1 else f"{count} trials at a time train")


def test_trials_that_have_no_room_side_by_side_take_turns() -> None:
    assert trials_at_a_time(searched({1: 90, 2: 100}, memory_gib=9), 2, MINUTES).chosen.count == 1


@pytest.mark.parametrize(
    ("limits", "count"), [({"max_memory_gib": 1.5}, 1), ({"max_memory_gib": 2}, 2), ({"max_watts": 50}, 1)]
)
def test_the_limits_of_memory_and_power_hold_for_all_of_them_together(limits: dict[str, float], count: int) -> None:
    decision = searched({1: 90, 2: 100}).model_copy(update={"limits": Limits(**limits)})
    assert trials_at_a_time(decision, 2, MINUTES).chosen.count == count


@pytest.mark.parametrize("placement", [{"accelerator": "cuda:0"}, {"processes": 2}, {"embedding_memory_bytes": 2**20}])
def test_what_has_no_processor_of_its_own_to_share_is_one_at_a_time(placement: dict[str, Any]) -> None:
    assert trials_at_a_time(searched({1: 90, 2: 100}, **placement), 2, MINUTES).chosen.count == 1


def test_a_short_search_is_over_before_processes_of_their_own_would_pay() -> None:
    assert trials_at_a_time(searched({1: 90, 2: 100}), 2, MINUTES - 1).chosen.count == 1
