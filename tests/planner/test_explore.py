"""Nights of the same training: placements are tried while that promises something, and the best is kept to."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from shunter.planner.calibration import Calibration, Ratios
from shunter.planner.decide import Decision, decide
from shunter.planner.explore import LEAST_CHANCE, MOST_WASTED, STOP_MULTIPLE, PastJob, maybe_explore
from shunter.planner.history import History, PastRun
from shunter.planner.predict.predicted import with_quality, with_work
from shunter.planner.rank.totals import Terms
from shunter.requests import Explore, Limits
from shunter.tracking.evidence import PairedTrial
from tests.planner.measurements import at, past_run
from tests.planner.test_decide import TEN_EPOCHS, candidate

EPOCH_SECONDS = {64: 220.0, 256: 150.0, 1024: 100.0, 4096: 90.0}
# What each batch size really needs of the plan: the largest, the fastest by epoch, takes nearly all of it.
WORK_SHARE = {64: 0.30, 256: 0.32, 1024: 0.40, 4096: 0.95}
BEST = min(EPOCH_SECONDS, key=lambda size: EPOCH_SECONDS[size] * WORK_SHARE[size])
NO_LIMITS = Limits()


def by_plan(limits: Limits = NO_LIMITS, objective: str = "time", runs: Sequence[PastRun] = ()) -> Decision:
    """The decision by what is known, without any exploration."""
    candidates = [
        candidate(size, seconds=seconds, joules=20 * seconds, price=None) for size, seconds in EPOCH_SECONDS.items()
    ]
    history = History(runs=tuple(runs))
    learned = with_work(candidates, history, data="abc", family="dlrm")
    return decide(
        with_quality(learned, history, limits.min_auc, data="abc", family="dlrm"),
        Terms.of(limits, objective, TEN_EPOCHS),
    )


def night(decision: Decision, number: int) -> PastRun:
    """What the run of a decision leaves behind; an exploration is stopped where the decision says."""
    size = decision.placement.batch_size
    noise = math.exp(0.05 * np.random.default_rng(number).standard_normal())
    hours = 10 * EPOCH_SECONDS[size] * WORK_SHARE[size] * noise / 3600
    stop = decision.watched_limits.max_hours or math.inf
    return past_run(
        decision.placement,
        run_id=f"night-{number}",
        auc=0.75,
        seconds=3600 * min(hours, stop),
        work_share=WORK_SHARE[size] * noise * min(1.0, stop / hours),
        outcome="stopped" if stop < hours else "reached",
        was_exploration=decision.exploration is not None,
    )


def after(runs: list[PastRun], decision: Decision | None = None, mode: Explore = Explore.BOUNDED) -> Decision:
    return maybe_explore(decision or by_plan(runs=runs), job(runs), mode)


def job(runs: list[PastRun], data: str = "abc", family: str = "dlrm") -> PastJob:
    return PastJob(History(runs=tuple(runs)), data, family)


def test_first_run_follows_the_plan() -> None:
    assert after([]) == by_plan()
    assert by_plan().placement.batch_size == 4096


@pytest.mark.parametrize("mode", [Explore.BOUNDED, Explore.FREE])
def test_later_runs_come_to_what_needs_least_and_keep_to_it(mode: Explore) -> None:
    runs: list[PastRun] = []
    for number in range(12):
        runs.append(night(after(runs, mode=mode), number))
    sizes = [run.placement.batch_size for run in runs if run.placement is not None]
    assert sizes[0] == 4096
    assert sizes[-5:] == [BEST] * 5
    costs = [EPOCH_SECONDS[size] * WORK_SHARE[size] for size in sizes]
    assert sum(costs) < 0.75 * len(costs) * EPOCH_SECONDS[4096] * WORK_SHARE[4096]


def test_never_takes_the_least_expected_and_explores_nothing() -> None:
    runs = [night(by_plan(), number) for number in range(3)]
    decision = after(runs, mode=Explore.NEVER)
    assert decision == by_plan(runs=runs)
    assert decision.exploration is None


def test_exploration_says_so_and_holds_together() -> None:
    runs = [night(by_plan(), number) for number in range(3)]
    decision = after(runs)
    first = decision.table[0]
    assert decision.exploration is not None
    assert decision.exploration.best_known.batch_size == 4096
    assert decision.placement != by_plan().placement
    assert decision.placement == first.candidate.placement
    assert (decision.hours, decision.kwh) == (first.hours, first.kwh)
    assert [row.rank for row in decision.table] == [1, 2, 3, 4]
    assert decision.explanation.startswith(decision.reason)
    assert after(runs) == decision


def test_exploration_is_stopped_at_a_multiple_of_the_best_known() -> None:
    runs = [night(by_plan(), number) for number in range(3)]
    decision = after(runs)
    assert decision.exploration is not None
    took = float(np.median([run.seconds or 0.0 for run in runs])) / 3600  # and not what is predicted
    assert decision.watched_limits.max_hours == pytest.approx(STOP_MULTIPLE * took)
    tighter = decision.model_copy(update={"limits": Limits(max_hours=took)})
    assert tighter.watched_limits.max_hours == took


def test_a_search_explores_by_one_extra_trial_once_predictions_are_calibrated() -> None:
    runs = [night(by_plan(), number) for number in range(6)]
    decision = by_plan(runs=runs)
    assert maybe_explore(decision, job(runs), Explore.BOUNDED, trials=6).exploration is None
    calibrated = Calibration(known=True, seconds=Ratios.of([(1.0, 1.0)] * 3))
    decision = decision.model_copy(update={"calibration": calibrated})
    found = maybe_explore(decision, job(runs), Explore.BOUNDED, trials=6)
    assert found.exploration is not None
    assert found.exploration.chance is not None
    assert found.exploration.chance >= LEAST_CHANCE
    assert found.exploration.paired is not None
    assert found.placement == found.exploration.best_known != found.exploration.paired
    assert found.watched_limits == found.limits
    assert not found.is_exploration


def test_an_extra_trial_teaches_the_work_of_its_batch_size() -> None:
    """The other batch size needs half the passes: later runs take it."""
    runs = [night(by_plan(), number) for number in range(4)]
    known, other = runs[0].placement, at(256)
    assert known is not None
    pair = PairedTrial(placement=other, beside=known, seconds=10.0, seconds_ratio=0.5, epochs_ratio=0.3)
    taught = [runs[0].model_copy(update={"pair": pair}), *runs[1:]]
    assert job(taught).good_batch_sizes().count(256) == 1
    shares = job(taught).work_shares([256, 4096])
    before = job(runs).work_shares([256, 4096])
    assert shares is not None
    assert before is not None
    assert shares.mean[0] < before.mean[0]
    stopped = runs[0].model_copy(update={"pair": pair.model_copy(update={"is_stopped": True})})
    assert 256 not in job([stopped]).good_batch_sizes()


def test_explorations_together_waste_no_more_than_their_share() -> None:
    """Every other batch size needs five times the work: all explorations are in vain."""
    runs: list[PastRun] = []
    truth = {size: 0.3 if size == 4096 else 1.5 for size in EPOCH_SECONDS}
    for number in range(40):
        decision = after(runs)
        share = truth[decision.placement.batch_size]
        hours = 10 * EPOCH_SECONDS[decision.placement.batch_size] * share / 3600
        stop = min(1.0, (decision.watched_limits.max_hours or math.inf) / hours)
        ended = {"seconds": 3600 * hours * stop, "work_share": share * stop}
        ended |= {"outcome": "stopped" if stop < 1 else "reached"}
        runs.append(night(decision, number).model_copy(update=ended))
    spent = sum(run.seconds or 0.0 for run in runs)
    wasted = sum(run.seconds or 0.0 for run in runs if run.was_exploration and run.is_censored)
    longest = max(run.seconds or 0.0 for run in runs)
    assert any(run.was_exploration for run in runs)
    assert wasted <= MOST_WASTED * spent + longest
    assert not any(run.was_exploration for run in runs[-10:])


def test_what_missed_the_quality_is_not_taken_again() -> None:
    missed = night(by_plan(), 0).model_copy(update={"outcome": "missed", "work_share": 0.4, "auc": None})
    runs = [missed]
    decision = after(runs)
    assert decision.placement.batch_size != 4096
    good = night(decision, 1)
    assert after([missed, good]).placement.batch_size != 4096


def test_excluded_placement_is_never_tried() -> None:
    limited = by_plan(Limits(max_hours=0.3))  # only the two larger batch sizes keep it
    runs = [night(limited, number) for number in range(4)]
    for count in range(1, 5):
        assert after(runs[:count], limited).placement.batch_size in (1024, 4096)


@pytest.mark.parametrize(("data", "family"), [("other", "dlrm"), ("abc", "wide")])
def test_runs_of_other_data_or_models_teach_nothing(data: str, family: str) -> None:
    runs = [night(by_plan(), number) for number in range(3)]
    assert maybe_explore(by_plan(), job(runs, data, family), Explore.BOUNDED) == by_plan()
