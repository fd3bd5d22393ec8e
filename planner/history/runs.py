"""Past runs as values to learn from, and the rules that exclude invalid runs.

A run with an evidence record is read from the record, independent of how the run ended. Finished runs without a record
(from earlier versions) are read from their parameters and metrics.
"""

import math
import re
from datetime import UTC, datetime, timedelta

from pydantic import Field

from shunter.errors import TrackingError
from shunter.frozen import Frozen
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import Placement
from shunter.hardware.units import JOULES_PER_KWH
from shunter.requests import Objective
from shunter.tracking.convention import ENERGY_METRICS, QUALITY_METRICS, SCHEMA_VERSION, TOTAL_SECONDS, TRAINING_METRICS
from shunter.tracking.evidence import (
    Evidence,
    EvidenceKind,
    Figures,
    Limit,
    Outcome,
    PairedTrial,
    TooLarge,
    data_key,
    read_evidence,
)
from shunter.tracking.history import TrackedRun
from shunter.tracking.learning import read_steps

CLOCK_TOLERANCE_SECONDS = 300.0  # clock difference between machines that share a store
UNFINISHED = "RUNNING"
LONGEST_RUN_SECONDS = 7 * 86_400.0
# Far beyond the cost model's error, even for catalogue profiles: the figure is wrong or belongs to other work.
MOST_ERROR = 30.0
LEAST_WATCHED_SHARE = 0.8  # smallest share of a flow's time in its last attempt's steps if there was one attempt
NEARLY_ALL = 0.9  # used share of a budget from which on the budget is assumed to have ended the work
AUC, JOULES = QUALITY_METRICS["auc"], ENERGY_METRICS["joules"]
# Metric of a run's duration by kind, which must exist; of other kinds only step times are learned.
DURATION = {"train": TOTAL_SECONDS, "member": TRAINING_METRICS["train_seconds"]}
# Metrics that must be positive numbers if they exist.
POSITIVE = (
    ENERGY_METRICS["joules"],
    ENERGY_METRICS["seconds"],
    TRAINING_METRICS["samples_per_second"],
    TRAINING_METRICS["peak_memory_bytes"],
)


class Exclusion(Frozen):
    """Run, or one observation of a run, that is excluded from learning."""

    run_id: str
    reason: str = Field(description="Why the run is excluded, as the end of the sentence `Run ... is left out: ...`.")


class PastRun(Frozen):
    """Quality, totals and step times of a past run; unmeasured values are None."""

    run_id: str
    kind: EvidenceKind
    ended_at: str = Field(description="End of the run, in UTC and ISO 8601.")
    data: str = Field(description="Key of the training data, as made by `data_key`; empty if unknown.")
    family: str | None = Field(description="Model family.")
    placement: Placement | None
    auc: float | None = Field(description="AUC on the validation part.")
    ne: float | None = Field(default=None, description="NE on the validation part.")
    seconds: float | None = Field(
        description="Duration in seconds of the whole flow (kind `train`) or of one training run (kind `member`)."
    )
    joules: float | None = Field(
        description="Energy in joules of the whole flow or training run; None if not measured."
    )
    cost: float | None = Field(description="Cost of the run at the requested price; None if no price was requested.")
    work_share: float | None = Field(
        default=None,
        description="Share of the planned time of search and training that the run used; a lower bound of the needed "
        "share if the run was stopped early.",
    )
    was_cut: bool = Field(
        default=False, description="Whether a time or energy budget may have ended the run before it was complete."
    )
    outcome: Outcome = Field(
        default="reached", description="How the run ended, see `shunter.tracking.evidence.Ending`."
    )
    limit: Limit | None = Field(default=None, description="Limit that stopped the run; None if no limit did.")
    out_of_memory: bool = Field(default=False, description="Whether the run failed because memory was too small.")
    asked_auc: float | None = Field(default=None, description="Requested minimum AUC; None for no limit.")
    epochs: float | None = Field(
        default=None,
        description="Epochs of all trials and members together; a lower bound if the run was stopped early.",
    )
    planned_epochs: float | None = Field(default=None, description="Planned epochs of all trials and members together.")
    predicted: Figures = Field(
        default=Figures(), description="Predicted time, energy and memory of search and training."
    )
    measured: Figures = Field(default=Figures(), description="Measured time, energy and memory of search and training.")
    compiled: bool | None = Field(
        default=None, description="Whether the training steps were compiled; None if unknown."
    )
    too_large: tuple[TooLarge, ...] = Field(
        default=(), description="Placements whose accelerator had too little memory."
    )
    pair: PairedTrial | None = Field(default=None, description="Trial that explored another placement, if any.")
    known: bool | None = Field(
        default=None,
        description="Whether earlier runs of the job informed the choice of placement; None without a choice.",
    )
    was_exploration: bool = Field(
        default=False, description="Whether the run explored a placement other than the incumbent."
    )
    steps: tuple[StepObservation, ...] = ()

    @property
    def is_censored(self) -> bool:
        """Return True if the run ended before it reached the quality, so that its totals are lower bounds."""
        return self.was_cut or self.outcome != "reached"

    def total(self, quantity: Objective) -> float | None:
        """Return hours, kilowatt hours or money of the run; None if not measured."""
        hours = None if self.seconds is None else self.seconds / 3600
        kwh = None if self.joules is None else self.joules / JOULES_PER_KWH
        return {Objective.TIME: hours, Objective.ENERGY: kwh, Objective.COST: self.cost}[quantity]


def is_under_way(run: TrackedRun, now: float) -> bool:
    """Return True if the run is unfinished and younger than `LONGEST_RUN_SECONDS`; older ones count as killed."""
    return run.status == UNFINISHED and now - run.started_at < LONGEST_RUN_SECONDS


def admit(run: TrackedRun, parent: TrackedRun | None, now: float) -> PastRun | Exclusion:
    """Convert a tracked run to a `PastRun`, or return the reason for its exclusion.

    Args:
        run: Run as stored in MLflow.
        parent: Parent of a member, with the data and the request; None if it is not available.
        now: Seconds since 1970.
    """
    try:
        evidence = read_evidence(run.tags)
        reason = _broken_rule(run, now, evidence) or _broken_figure(run, evidence)
        if reason is None:
            return _value(run, parent or run) if evidence is None else _evident(run, evidence)
    except (TrackingError, ValueError, TypeError) as error:
        reason = f"its figures cannot be read ({' '.join(str(error).split())[:200]})"
    return Exclusion(run_id=run.run_id, reason=reason)


def _broken_rule(run: TrackedRun, now: float, evidence: Evidence | None) -> str | None:
    """Return the first rule on version, end and clock that the run breaks; None if it breaks none."""
    version = run.tags.get("schema.version", "none")
    if version != SCHEMA_VERSION:
        return f"it was written under schema version {version}, and version {SCHEMA_VERSION} is read"
    if run.status == UNFINISHED:
        return "it never ended"
    if run.status != "FINISHED" and evidence is None:
        return f"it ended as {run.status} ({run.tags.get('run.reason', 'no reason was recorded')})"
    if run.ended_at is None or run.ended_at < run.started_at:
        return "its clock ran backwards: it ended before it began"
    if run.ended_at > now + CLOCK_TOLERANCE_SECONDS:
        return "its clock ran ahead: it ended in the future"
    return None


def _broken_figure(run: TrackedRun, evidence: Evidence | None) -> str | None:
    """Return the first impossible metric; None if all are plausible. Evidence records have their own checks."""
    duration = DURATION.get(run.kind)
    if evidence is None and duration is not None and duration not in run.metrics:
        return f"it has no {duration}"
    for name in (*DURATION.values(), *POSITIVE):
        value = run.metrics.get(name, 1.0)
        if not (math.isfinite(value) and value > 0):
            return f"its {name} is {value:g}, where a positive number was expected"
    for name, value in run.metrics.items():
        if name.startswith("time.") and not value >= 0:
            return f"its {name} is {value:g}, where a time was expected"
    auc = run.metrics.get(AUC)
    if auc is not None and not 0 <= auc <= 1:
        return f"its quality.auc is {auc:g}, where a share was expected"
    return None


def _evident(run: TrackedRun, evidence: Evidence) -> PastRun:
    """Return the past run that an evidence record describes; energy that was not measured is left out."""
    same = (
        "outcome",
        "limit",
        "out_of_memory",
        "asked_auc",
        "epochs",
        "planned_epochs",
        "compiled",
        "known",
        "ne",
        "pair",
        "too_large",
        "work_share",
    )
    return PastRun(
        run_id=run.run_id,
        kind=evidence.kind,
        ended_at=_ended_at(run),
        data=evidence.data,
        family=evidence.family,
        placement=evidence.placement,
        auc=evidence.auc,
        seconds=evidence.total_seconds,
        joules=evidence.total_joules if evidence.measured.joules_source == "measured" else None,
        cost=evidence.cost,
        predicted=evidence.predicted,
        measured=evidence.measured,
        was_exploration="decision.exploration" in run.tags,
        steps=read_steps(run.tags),
        **{name: getattr(evidence, name) for name in same},
    )


def _ended_at(run: TrackedRun) -> str:
    assert run.ended_at is not None, "an earlier rule excludes runs that never ended"
    return datetime.fromtimestamp(run.ended_at, UTC).isoformat(timespec="seconds")


def _value(run: TrackedRun, parent: TrackedRun) -> PastRun:
    """Return the past run of an MLflow run that stored no record for learning; unmeasured values are left out."""
    seconds = run.metrics[DURATION[run.kind]] if run.kind in DURATION else None
    price = parent.metrics.get("request.price_per_hour")
    return PastRun.model_validate(
        {
            "run_id": run.run_id,
            "kind": run.kind,
            "ended_at": _ended_at(run),
            "data": data_key(parent.params),
            "family": run.params.get("model.family") or parent.params.get("request.model"),
            "placement": _placement(run),
            "auc": run.metrics.get(AUC),
            "seconds": seconds,
            "joules": run.metrics.get(JOULES) if run.tags.get("energy.source") == "measured" else None,
            "cost": None if price is None or seconds is None else price * seconds / 3600,
            "work_share": _work_share(run),
            "was_cut": _was_cut(run),
            "was_exploration": "decision.exploration" in run.tags,
            "steps": read_steps(run.tags),
        }
    )


def _work_share(run: TrackedRun) -> float | None:
    """Return the ratio of measured to planned time of tuning and training; None for an interrupted run."""
    planned = run.metrics.get("prediction.plan_seconds", run.metrics.get("prediction.job_seconds"))
    steps = {name: value for name, value in run.metrics.items() if re.fullmatch(r"time\.\w+_step_seconds", name)}
    worked = steps.get("time.tune_step_seconds", 0.0) + steps.get("time.train_step_seconds", 0.0)
    whole = sum(steps.values()) > LEAST_WATCHED_SHARE * run.metrics.get(TOTAL_SECONDS, 0.0)
    return worked / planned if planned and worked and whole else None


def _was_cut(run: TrackedRun) -> bool:
    """Return True if the flow came close to a limit, so that the limit may have ended it."""
    limits = {"request.max_hours": (TOTAL_SECONDS, 3600.0), "request.max_kwh": (JOULES, JOULES_PER_KWH)}
    return any(
        run.metrics.get(metric, 0.0) > NEARLY_ALL * run.metrics[name] * unit
        for name, (metric, unit) in limits.items()
        if name in run.metrics
    )


def _placement(run: TrackedRun) -> Placement | None:
    fields = {
        name: run.params[f"placement.{name}"] for name in Placement.model_fields if f"placement.{name}" in run.params
    }
    return Placement.model_validate(fields) if fields else None


def admit_step(run: PastRun, step: StepObservation) -> Exclusion | None:
    """Return why an observation of an admitted run is excluded; None if it is not."""
    if not _is_utc(step.measured_at):
        return Exclusion(run_id=run.run_id, reason="a measurement has no valid UTC time")
    error = step.measured_seconds / step.predicted_seconds
    if math.isfinite(error) and 1 / MOST_ERROR <= error <= MOST_ERROR:
        return None
    times = f"{step.measured_seconds:.3g} s a step where {step.predicted_seconds:.3g} s were predicted"
    return Exclusion(run_id=run.run_id, reason=f"at {step.placement.label} it took {times}: no model error explains it")


def _is_utc(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() == timedelta(0)
    except ValueError:
        return False
