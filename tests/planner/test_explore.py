"""Nights of the same training: placements are tried while that promises something, and the best is kept to."""

import math

import numpy as np
import pytest

from hardware.types import Placement, Prediction
from planner.assessment import Candidate
from planner.decide import Decision, decide
from planner.describe import JobSize
from planner.explore import explored
from planner.history import History, PastRun
from planner.rank.totals import Terms
from shunter.requests import Limits

EPOCH_SECONDS = {64: 220.0, 256: 150.0, 1024: 100.0, 4096: 90.0}
# What each batch size really needs of the plan: the largest, the fastest by epoch, takes nearly all of it.
WORK_SHARE = {64: 0.30, 256: 0.32, 1024: 0.40, 4096: 0.95}
BEST = min(EPOCH_SECONDS, key=lambda size: EPOCH_SECONDS[size] * WORK_SHARE[size])


NO_LIMITS = Limits()


def by_plan(limits: Limits = NO_LIMITS, objective: str = "time") -> Decision:
    candidates = [
        Candidate(
            placement=Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=size),
            prediction=Prediction(
                step_seconds=0.01,
                epoch_seconds=seconds,
                epoch_joules=20 * seconds,
                memory_bytes=2**30,
                samples_per_second=1.0,
                step_seconds_source="measured",
                energy_source="estimated",
            ),
            accelerator_memory_bytes=2**34,
        )
        for size, seconds in EPOCH_SECONDS.items()
    ]
    return decide(
        candidates, Terms.of(limits, objective, JobSize(tuning_epochs=6, final_epochs=4, evaluation_share=0.0))
    )


def night(decision: Decision, number: int) -> PastRun:
    """What the run of a decision leaves behind."""
    size = decision.placement.batch_size
    noise = math.exp(0.05 * np.random.default_rng(number).standard_normal())
    return PastRun(
        run_id=f"night-{number}",
        kind="train",
        ended_at="2026-01-01T00:00:00+00:00",
        data="abc",
        family="dlrm",
        placement=decision.placement,
        auc=0.75,
        seconds=10 * EPOCH_SECONDS[size],
        joules=None,
        cost=None,
        work_share=WORK_SHARE[size] * noise,
    )


def after(runs: list[PastRun], decision: Decision | None = None) -> Decision:
    return explored(decision or by_plan(), History(runs=tuple(runs)), data="abc", family="dlrm")


def test_first_run_follows_the_plan() -> None:
    assert after([]) == by_plan()
    assert by_plan().placement.batch_size == 4096


def test_later_runs_come_to_what_needs_least_and_keep_to_it() -> None:
    runs: list[PastRun] = []
    for number in range(12):
        runs.append(night(after(runs), number))
    sizes = [run.placement.batch_size for run in runs if run.placement is not None]
    assert sizes[0] == 4096
    assert sizes[-5:] == [BEST] * 5
    costs = [EPOCH_SECONDS[size] * WORK_SHARE[size] for size in sizes]
    assert sum(costs) < 0.75 * len(costs) * EPOCH_SECONDS[4096] * WORK_SHARE[4096]


def test_decision_for_another_placement_says_so_and_holds_together() -> None:
    runs = [night(by_plan(), number) for number in range(3)]
    decision = after(runs)
    first = decision.table[0]
    assert decision.placement != by_plan().placement
    assert decision.placement == first.candidate.placement
    assert (decision.hours, decision.kwh) == (first.hours, first.kwh)
    assert [row.rank for row in decision.table] == [1, 2, 3, 4]
    assert "although by plan cpu x1 fp32 b4096 needs less" in decision.reason
    assert decision.explanation.startswith(decision.reason)
    assert after(runs) == decision


def test_excluded_placement_is_never_tried() -> None:
    limited = by_plan(Limits(max_hours=0.3))  # only the two larger batch sizes keep it
    runs = [night(limited, number) for number in range(4)]
    for count in range(1, 5):
        assert after(runs[:count], limited).placement.batch_size in (1024, 4096)


@pytest.mark.parametrize(("data", "family"), [("other", "dlrm"), ("abc", "wide")])
def test_runs_of_other_data_or_models_teach_nothing(data: str, family: str) -> None:
    runs = tuple(night(by_plan(), number) for number in range(3))
    assert explored(by_plan(), History(runs=runs), data=data, family=family) == by_plan()
