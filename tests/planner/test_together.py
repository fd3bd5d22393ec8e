"""How many trainings at a time: by what each takes with its part of the machine, within memory and energy."""

import pytest

from planner.assessment import Candidate
from planner.decide import Decision, decide
from planner.rank.totals import Terms
from planner.together import START_SECONDS, trainings_at_a_time
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
    assert f"{count} of 4 trainings at a time" in found.words


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
    assert found.words.startswith("One training")
