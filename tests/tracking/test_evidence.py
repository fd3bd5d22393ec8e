"""The record of a run: how its end is told, and that it comes back from its tag as it was."""

import pytest
import torch

from shunter.engine.stopping import Budget, StopKind, StopLimit, StoppedError, StopReason
from shunter.errors import QualityNotReachedError, TooLargeError, TrackingError, TrainingError
from shunter.hardware.types import EnergyReading, Placement
from shunter.tracking.evidence import EVIDENCE, Evidence, Figures, ending_of, evidence_tags, limit_of, read_evidence
from shunter.tracking.runs import LONGEST_TAG
from tests.engine.reasons import HandClock

PLACEMENT = Placement(accelerator="cuda:0", threads=8, precision="bf16", batch_size=16384, power_limit_watts=250.0)


def full() -> Evidence:
    return Evidence(
        kind="train",
        outcome="missed",
        reason="r" * 300,
        data="clicks 13 26",
        family="dlrm",
        placement=PLACEMENT,
        auc=0.7712,
        asked_auc=0.78,
        epochs=12.5,
        planned_epochs=40.0,
        predicted=Figures(seconds=100.0, joules=2000.0, joules_source="estimated", memory_bytes=2**31),
        measured=Figures(seconds=45.6, joules=531.0, joules_source="measured", memory_bytes=2**30 + 1),
        total_seconds=61.0,
        total_joules=700.0,
        cost=0.25,
        compiled=False,
    )


def test_record_comes_back_as_it_was_and_has_room() -> None:
    tags = evidence_tags(full())
    assert len(tags[EVIDENCE]) < LONGEST_TAG / 2
    assert read_evidence(tags) == full()
    assert read_evidence({}) is None


def test_work_of_a_miss_is_a_share_of_the_plan_and_a_lower_bound() -> None:
    assert full().work_share == pytest.approx(12.5 / 40)
    assert full().is_censored
    assert not Evidence(kind="train", outcome="reached").is_censored
    assert Evidence(kind="train", outcome="reached").work_share is None


def test_work_without_epochs_is_a_share_of_the_planned_time() -> None:
    by_time = full().model_copy(update={"planned_epochs": None})
    assert by_time.work_share == pytest.approx(45.6 / 100)
    planned = by_time.model_copy(update={"planned_seconds": 200.0})
    assert planned.work_share == pytest.approx(45.6 / 200), "what past runs led to expect is not what was planned"


@pytest.mark.parametrize(
    "text",
    ['{"version":2,"kind":"train","outcome":"reached"}', "{", "[]", '{"version":1,"kind":"train","outcome":"won"}'],
)
def test_record_that_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(TrackingError, match=r"learning\.evidence"):
        read_evidence({EVIDENCE: text})


def test_finished_run_is_judged_by_the_quality_asked_for() -> None:
    assert ending_of().outcome == "reached"
    assert ending_of(auc=0.8, asked_auc=0.78, reason=StopReason(StopKind.PATIENCE)).outcome == "reached"
    assert ending_of(auc=0.7, asked_auc=0.78, reason=StopReason(StopKind.MAX_EPOCHS)).outcome == "missed"
    error = QualityNotReachedError("The model reached AUC 0.7.", 0.7)
    assert ending_of(asked_auc=0.78, error=error).outcome == "missed"


CLOCK = HandClock(work=10.0)


class _Meter:
    reading = EnergyReading.of(10.0, 10.0, "measured", "a counter")

    def joules_so_far(self) -> float | None:
        return 10.0


@pytest.mark.parametrize(
    ("limit", "budget"),
    [
        ("time", Budget(clock=CLOCK, meter=_Meter(), max_seconds=5.0)),
        ("energy", Budget(clock=CLOCK, meter=_Meter(), max_joules=5.0)),
        ("cost", Budget(clock=CLOCK, meter=_Meter(), max_cost=0.001, price_per_hour=3.6)),
    ],
)
def test_limit_is_known_by_what_the_budget_says(limit: str, budget: Budget) -> None:
    CLOCK.now += 2.0  # then a meter is read
    reason = budget.exhausted()
    assert reason is not None
    assert limit_of(reason) == limit
    stopped = ending_of(auc=0.7, asked_auc=0.78, reason=reason)
    assert (stopped.outcome, stopped.limit) == ("stopped", limit)
    assert ending_of(auc=0.79, asked_auc=0.78, reason=reason).outcome == "reached"
    assert ending_of(error=StoppedError("The budget ended before the first trial.", reason)).limit == limit


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (StopKind.SEARCH_BUDGET, "search"),
        (StopKind.EXPLORATION, "early_stop"),
        (StopKind.SHARE, "early_stop"),
        (StopKind.PRUNED, "early_stop"),
        (StopKind.SCREENING, "early_stop"),
        (StopKind.INTERRUPTED, "early_stop"),
        (StopKind.EXHAUSTED, None),
        (StopKind.EARLIER, None),
        (StopKind.SOLVED, None),
    ],
)
def test_the_record_names_the_limit_of_each_kind(kind: StopKind, limit: str | None) -> None:
    assert limit_of(StopReason(kind, StopLimit.TIME)) == limit


def test_the_words_of_an_error_decide_nothing() -> None:
    said = ending_of(error=TrainingError("The time limit of 1 h is used up."))
    assert (said.outcome, said.limit) == ("failed", None)


def test_error_says_what_went_wrong_and_memory_is_told_apart() -> None:
    failed = ending_of(error=TrainingError("The loss is not a number.\nIt was in step 3."))
    assert (failed.outcome, failed.reason, failed.out_of_memory) == ("failed", "The loss is not a number", False)
    assert ending_of(error=torch.OutOfMemoryError("CUDA out of memory")).out_of_memory
    assert ending_of(error=TooLargeError("The tables take too much.")).out_of_memory
    wrapped = TrainingError("All 3 trials failed.")
    wrapped.__cause__ = MemoryError()
    assert ending_of(error=wrapped).out_of_memory


def test_wish_to_end_is_no_failure() -> None:
    ended = ending_of(error=KeyboardInterrupt())
    assert (ended.outcome, ended.limit, ended.reason) == ("stopped", "interrupted", "KeyboardInterrupt")
