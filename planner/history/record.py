"""Evidence record of a whole flow: the decision's predictions beside the measured totals of its training runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shunter.engine.stopping import StopReason
from shunter.hardware.types import EnergyReading, Placement
from shunter.planner.decide import Decision
from shunter.planner.job_size import JobSize
from shunter.requests import JobRequest
from shunter.tracking.evidence import Ending, Evidence, EvidenceKind, Figures, PairedTrial, Source, TooLarge, ending_of

WHAT_LEARNS = ("batch_size", "precision")  # of a placement, what changes the epochs that a training run needs


@dataclass
class FlowNotes:
    """Intermediate results of a running flow, written by its steps.

    Attributes:
        data: Key of the data, by `data_key`.
        decision: Chosen placement with its predictions; None before the choice.
        search: Time and energy of the search, including earlier attempts; None before the search has ended.
        seconds: Time of search and training, including earlier attempts; None before both have ended, or if only the
            parts are measured.
        auc: Validation AUC of the result; None before it is known, and for ranking models.
        ne: Validation NE of the result; None before it is known, and for ranking models.
        stop_reason: Limit that ended a training run; None if no limit did.
        beside: Names of training runs that the decision does not predict; the measured totals leave them out.
        pair: Trial that explored a placement; None if there is none.
    """

    data: str = ""
    decision: Decision | None = None
    search: Figures | None = None
    seconds: float | None = None
    auc: float | None = None
    ne: float | None = None
    stop_reason: StopReason | None = None
    beside: tuple[str, ...] = ()
    pair: PairedTrial | None = None


def flow_evidence(
    kind: EvidenceKind,
    request: JobRequest,
    notes: FlowNotes,
    *,
    total: EnergyReading | None = None,
    trainings: Sequence[Evidence] = (),
    error: BaseException | None = None,
) -> Evidence:
    """Return the evidence record of a flow.

    Args:
        kind: Kind of the flow's run.
        request: The request.
        notes: Results of the flow.
        total: Time and energy of the whole flow, including earlier attempts; None if not metered.
        trainings: Records of the flow's trials and members.
        error: Error that ended the flow; None if it finished.
    """
    asked = request.limits.min_auc
    auc = getattr(error, "auc", notes.auc)
    decision, price = notes.decision, request.pricing.price_per_hour
    price = price if price is not None or decision is None else decision.given_price_per_hour
    ending = ending_of(auc=auc, asked_auc=asked, reason=notes.stop_reason, error=error)
    if error is None and decision and decision.is_exploration and notes.pair is not None:  # the incumbent took over
        is_stopped = notes.pair.is_stopped
        ending = Ending(outcome="stopped", limit="early_stop") if is_stopped else Ending(outcome="missed")
    if decision and notes.pair is not None:
        trainings = [one for one in trainings if _is_at(one.placement, decision.placement)]
    members = [one for one in trainings if one.kind == "member"]
    return Evidence(
        kind=kind,
        **dict(ending),
        data=notes.data,
        family=request.model,
        placement=decision.placement if decision else None,
        auc=None if auc is None or math.isnan(auc) else auc,
        ne=None if notes.ne is None or math.isnan(notes.ne) else notes.ne,
        asked_auc=asked,
        epochs=_sum([one.epochs for one in trainings]),
        planned_epochs=_planned_epochs(decision.job, kind) if decision else None,
        planned_seconds=decision.plan_seconds or None if decision and kind != "tune" else None,
        predicted=predicted_figures(decision, kind) if decision else Figures(),
        measured=_measured(notes, trainings),
        total_seconds=total.seconds or None if total else None,
        total_joules=total.joules or None if total else None,
        cost=None if price is None or total is None else price * total.seconds / 3600,
        compiled=any(one.compiled for one in members) if members else None,
        known=decision.calibration.known if decision else None,
        pair=notes.pair,
        too_large=_too_large(decision, ending) if decision else (),
    )


def _is_at(placement: Placement | None, chosen: Placement) -> bool:
    """Return True if a training run ran at the batch size and precision of the chosen placement."""
    return placement is None or all(getattr(placement, name) == getattr(chosen, name) for name in WHAT_LEARNS)


def _too_large(decision: Decision, ending: Ending) -> tuple[TooLarge, ...]:
    """Return the placements that ran out of memory in probes, and this run's placement if it ran out of memory."""
    own = [decision.placement] if ending.out_of_memory else []
    memory = {row.candidate.placement: row.candidate.accelerator_memory_bytes for row in decision.table}
    found = [*decision.too_large, *own]
    return tuple(
        TooLarge(placement=one, accelerator_memory_bytes=memory[one]) for one in dict.fromkeys(found) if one in memory
    )


def _planned_epochs(job: JobSize, kind: EvidenceKind) -> float | None:
    """Return the planned epochs; None if a time or energy budget ends the search."""
    is_counted = job.tuning_seconds is None and job.tuning_joules is None
    final_epochs = 0.0 if kind == "tune" else job.final_epochs
    return (job.tuning_epochs + final_epochs) or None if is_counted else None


def predicted_figures(decision: Decision, kind: EvidenceKind) -> Figures:
    """Return the predicted totals of the flow; for a flow that only tunes, scaled to the share of tuning epochs."""
    job, prediction = decision.job, decision.prediction
    seconds, joules = decision.uncalibrated
    share = job.tuning_epochs / (job.tuning_epochs + job.final_epochs) if kind == "tune" else 1.0
    return Figures(
        seconds=share * seconds or None,
        joules=share * joules or None if joules else None,
        joules_source=prediction.energy_source,
        step_seconds=prediction.step_seconds,
        step_seconds_source=prediction.step_seconds_source,
        memory_bytes=prediction.memory_bytes or None,
        memory_source=prediction.memory_source,
    )


def _measured(notes: FlowNotes, trainings: Sequence[Evidence]) -> Figures:
    """Return the measured totals of the search (or of its trials if it was not metered) and the members.

    An extra trial is left out, because the decision does not predict it.
    """
    trials = [one.measured for one in trainings if one.kind == "trial"]
    members = [one.measured for one in trainings if one.kind == "member"]
    search, seconds = notes.search, notes.seconds
    if notes.pair and seconds:
        seconds = max(seconds - notes.pair.seconds, 1e-3 * seconds)
    if search and search.seconds and notes.pair:
        share = max(1 - notes.pair.seconds / search.seconds, 1e-3)
        joules = None if search.joules is None else share * search.joules
        search = search.model_copy(update={"seconds": share * search.seconds, "joules": joules})
    parts = [*([search] if search else trials), *members]
    sources: set[Source] = {part.joules_source for part in parts if part.joules_source}
    memory = [part.memory_bytes for part in (*trials, *members) if part.memory_bytes]
    return Figures(
        seconds=seconds or _sum([part.seconds for part in parts]),
        joules=_sum([part.joules for part in parts]) if len(sources) == 1 else None,
        joules_source=sources.pop() if len(sources) == 1 else None,
        memory_bytes=max(memory, default=None),
        memory_source="measured" if memory else None,
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum; None if a part is unknown or there are no parts."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
