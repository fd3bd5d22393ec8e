"""The record of a flow: what its decision predicted beside what its trainings took, pair by pair."""

from dataclasses import replace
from typing import Any

import pytest

from shunter.engine.stopping import StopKind, StopLimit, StopReason
from shunter.errors import QualityNotReachedError
from shunter.hardware.types import EnergyReading
from shunter.planner.decide import Decision, Exploration, decide
from shunter.planner.history.record import FlowNotes, flow_evidence
from shunter.planner.rank.totals import Terms
from shunter.requests import Limits, TrainRequest
from shunter.tracking.evidence import Evidence, Figures, PairedTrial
from tests.planner.measurements import at
from tests.planner.test_decide import TEN_EPOCHS, candidate

PLACEMENT = at(512, threads=2)
TOTAL = EnergyReading.of(900.0, 90.0, "measured", "a counter")


def used_up(limit: StopLimit) -> StopReason:
    return StopReason(StopKind.LIMIT, limit, {"hours": 1.0, "kwh": 1.0, "cost": 1.0})


def decision() -> Decision:
    one = candidate(512, threads=2, seconds=10.0, joules=200.0, price=None)
    return decide([one], Terms.of(Limits(), "time", TEN_EPOCHS))


def training(kind: str, **changes: Any) -> Evidence:
    figures = Figures(seconds=10.0, joules=100.0, joules_source="measured", memory_bytes=2**29)
    return Evidence.model_validate({"kind": kind, "outcome": "reached", "epochs": 1.5, "measured": figures, **changes})


def test_prediction_and_outcome_stand_side_by_side() -> None:
    notes = FlowNotes(data="clicks 13 26", decision=decision(), auc=0.8)
    trainings = [training("trial"), training("trial"), training("member", compiled=True)]
    request = TrainRequest(price_per_hour=40, limits=Limits(min_auc=0.78))
    found = flow_evidence("train", request, notes, total=TOTAL, trainings=trainings)
    assert (found.outcome, found.auc, found.asked_auc) == ("reached", 0.8, 0.78)
    assert (found.predicted.seconds, found.measured.seconds) == (100.0, 30.0)
    assert (found.predicted.joules, found.measured.joules) == (2000.0, 300.0)
    assert (found.predicted.joules_source, found.measured.joules_source) == ("estimated", "measured")
    assert (found.predicted.memory_bytes, found.measured.memory_bytes) == (2**30, 2**29)
    assert (found.epochs, found.planned_epochs) == (4.5, 10.0)
    assert found.work_share == pytest.approx(0.45), "by epochs: time would count the error of the step as well"
    assert (found.total_seconds, found.total_joules, found.cost) == (90.0, 900.0, 1.0)
    assert found.compiled


def test_search_counts_as_a_whole_and_of_tuning_alone_its_share_was_planned() -> None:
    notes = FlowNotes(decision=decision(), search=Figures(seconds=17.0, joules=150.0, joules_source="measured"))
    found = flow_evidence("tune", TrainRequest(), notes, trainings=[training("trial"), training("trial")])
    assert found.measured.seconds == 17.0
    assert found.measured.joules == 150.0
    assert found.predicted.seconds == pytest.approx(60.0)
    assert (found.epochs, found.planned_epochs) == (3.0, 6.0)


def test_joules_of_a_counter_and_of_a_model_are_not_added() -> None:
    estimated = Figures(seconds=10.0, joules=100.0, joules_source="estimated")
    trainings = [training("trial"), training("member", measured=estimated)]
    found = flow_evidence("train", TrainRequest(), FlowNotes(), trainings=trainings)
    assert (found.measured.joules, found.measured.joules_source) == (None, None)
    assert found.measured.seconds == 20.0


@pytest.mark.parametrize(
    ("error", "outcome", "auc"),
    [
        (QualityNotReachedError("The model reached AUC 0.7.", 0.7), "missed", 0.7),
        (QualityNotReachedError("There was one class.", float("nan")), "missed", None),
        (KeyboardInterrupt(), "stopped", None),
        (MemoryError(), "failed", None),
    ],
)
def test_whatever_ends_it_the_work_that_was_done_is_kept(error: BaseException, outcome: str, auc: float | None) -> None:
    request = TrainRequest(limits=Limits(min_auc=0.78))
    found = flow_evidence("train", request, FlowNotes(decision=decision()), trainings=[training("trial")], error=error)
    assert (found.outcome, found.auc) == (outcome, auc)
    assert found.is_censored
    assert found.work_share == pytest.approx(0.15)
    assert found.out_of_memory == isinstance(error, MemoryError)


def test_only_the_time_of_an_exploration_stops_it_early() -> None:
    exploration = Exploration(best_known=PLACEMENT, stop_multiple=2.0, stop_hours=0.5)
    notes = FlowNotes(
        decision=decision().model_copy(update={"exploration": exploration}),
        stop_reason=StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": 2.0}),
    )
    found = flow_evidence("train", TrainRequest(), notes)
    assert (found.outcome, found.limit) == ("stopped", "early_stop")
    for limit in StopLimit:
        notes.stop_reason = used_up(limit)
        assert flow_evidence("train", TrainRequest(), notes).limit == limit


def test_training_that_a_limit_stopped_is_a_lower_bound_unless_it_was_good_enough() -> None:
    notes = FlowNotes(decision=decision(), auc=0.8, stop_reason=used_up(StopLimit.TIME))
    assert flow_evidence("train", TrainRequest(), notes).limit == "time"
    assert flow_evidence("train", TrainRequest(limits=Limits(min_auc=0.79)), notes).outcome == "reached"
    assert flow_evidence("train", TrainRequest(limits=Limits(min_auc=0.81)), notes).outcome == "stopped"


SMALL = PLACEMENT.model_copy(update={"batch_size": 256})
PAIR = PairedTrial(placement=SMALL, beside=PLACEMENT, seconds=5.0, seconds_ratio=1.2, epochs_ratio=0.8, ne_ratio=0.99)


def test_an_extra_trial_is_recorded_and_counts_neither_as_work_nor_as_epochs() -> None:
    search = Figures(seconds=20.0, joules=100.0, joules_source="measured")
    notes = FlowNotes(decision=decision(), ne=0.8, search=search, pair=PAIR)
    trainings = [training("trial", placement=PLACEMENT), training("trial", placement=SMALL)]
    found = flow_evidence("train", TrainRequest(), notes, trainings=trainings)
    assert (found.outcome, found.pair, found.ne) == ("reached", PAIR, 0.8)
    assert (found.measured.seconds, found.measured.joules) == (15.0, 75.0)
    assert found.epochs == 1.5


def test_time_beside_trials_and_members_counts_as_the_prediction_counts_it() -> None:
    search = Figures(seconds=20.0, joules=100.0, joules_source="measured")
    notes = FlowNotes(decision=decision(), search=search, seconds=36.0)
    for noted, seconds in ((notes, 36.0), (replace(notes, seconds=None), 30.0), (replace(notes, pair=PAIR), 31.0)):
        found = flow_evidence("train", TrainRequest(), noted, trainings=[training("trial"), training("member")])
        assert found.measured.seconds == seconds


@pytest.mark.parametrize(("is_stopped", "outcome"), [(True, "stopped"), (False, "missed")])
def test_an_exploration_after_which_the_best_known_took_over_is_no_success(is_stopped: bool, outcome: str) -> None:
    exploration = Exploration(best_known=SMALL, stop_multiple=2.0, stop_hours=0.5)
    pair = PAIR.model_copy(update={"placement": PLACEMENT, "beside": SMALL, "is_stopped": is_stopped})
    notes = FlowNotes(decision=decision().model_copy(update={"exploration": exploration}), auc=0.8, pair=pair)
    trainings = [training("trial", placement=PLACEMENT), training("trial", placement=SMALL)]
    found = flow_evidence("train", TrainRequest(limits=Limits(min_auc=0.7)), notes, trainings=trainings)
    assert found.outcome == outcome
    assert (found.placement, found.epochs) == (PLACEMENT, 1.5)
