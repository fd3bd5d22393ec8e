"""A placement is judged by the throughput of the search: trials share the cores that one of them leaves."""

from typing import Any

import pytest

from shunter.planner.choose import _may_run_trials_together
from shunter.planner.decide import Decision, decide
from shunter.planner.job_size import JobSize
from shunter.planner.predict.predicted import MOST_TRIALS, with_parallel_trials
from shunter.planner.rank.totals import START_SECONDS, Terms
from shunter.requests import Limits, SelectRequest, TrainRequest
from tests.planner.test_decide import candidate

JOB = JobSize(tuning_epochs=9, final_epochs=3, evaluation_share=0.0)


def decided(one_seconds: float, two_seconds: float, cores: int, trials: int = 9, memory_gib: float = 1) -> Decision:
    """Decide between one thread and two, by the seconds of an epoch on each."""
    each = [
        candidate(512, threads=threads, seconds=seconds, joules=seconds, memory_gib=memory_gib)
        for threads, seconds in ((1, one_seconds), (2, two_seconds))
    ]
    return decide(with_parallel_trials(each, trials, cores), Terms.of(Limits(), "time", JOB))


def test_parallel_trials_of_one_thread_win_over_one_trial_of_two() -> None:
    decision = decided(100, 90, cores=2)
    assert (decision.placement.threads, decision.trials_at_once) == (1, 2)
    assert decision.hours * 3600 == pytest.approx(9 * 100 / 2 + START_SECONDS + 3 * 100)


@pytest.mark.parametrize(
    ("one", "two", "cores", "expected"),
    [
        pytest.param(100, 55, 2, (2, 1), id="two threads help one trial as much"),
        pytest.param(100, 60, 2, (1, 2), id="within the noise of steps cores are left for other trials"),
        pytest.param(100, 90, 1, (2, 1), id="no core is left"),
        pytest.param(0.5, 0.45, 2, (2, 1), id="too short for a process more"),
        pytest.param(100, 90, 64, (2, 3), id="a search has at least three rounds"),
    ],
)
def test_number_of_trials_follows_cores_length_and_rounds(
    one: float, two: float, cores: int, expected: tuple[int, int]
) -> None:
    decision = decided(one, two, cores)
    assert (decision.placement.threads, decision.trials_at_once) == expected


def test_parallel_trials_fit_into_memory_and_have_a_largest_number() -> None:
    assert decided(100, 90, cores=2, memory_gib=9).trials_at_once == 1  # of 16
    assert decided(100, 90, cores=64, trials=90).trials_at_once == MOST_TRIALS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"trials": 20}, True),
        ({"parallel_trials": 1}, False),
        ({"search_minutes": 5}, False),
        ({"search_cost": "time"}, False),
        ({"search_method": "dnas"}, False),
        ({"model": "lightgcn"}, False),
        ({"cluster": "auto"}, False),
        ({"processes": 2}, False),
        ({"max_watts": 20}, False),
    ],
)
def test_only_counted_searches_on_this_machine_run_trials_together(options: dict[str, Any], *, expected: bool) -> None:
    assert _may_run_trials_together(TrainRequest(**options)) is expected


def test_a_choice_alone_counts_what_a_training_would() -> None:
    assert _may_run_trials_together(SelectRequest())
