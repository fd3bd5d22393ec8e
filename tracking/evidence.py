"""What one run teaches, however it ended: what was asked, what was predicted, and what came of it.

Each run keeps one record, as a JSON tag: a whole history comes with its runs and needs no further file. Prediction and
outcome stand side by side under the same names, so that every run says how far the prediction was off.
"""

import json
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, ValidationError

from shunter.engine.memory import is_out_of_memory
from shunter.engine.stopping import StopKind, StoppedError, StopReason
from shunter.engine.stopping_text import stop_text
from shunter.errors import ProcessLostError, QualityMissedError, TooLargeError, TrackingError, first_line
from shunter.frozen import Frozen
from shunter.hardware.types import Placement
from shunter.tracking.learning import compact_json
from shunter.tracking.runs import open_run

EVIDENCE = "learning.evidence"
LONGEST_REASON = 300

EvidenceKind = Literal["train", "nightly", "tune", "select", "trial", "member"]
Outcome = Literal["reached", "missed", "stopped", "failed"]
# A limit of the request, the budget of the search alone, one that is worse than others, someone's wish.
Limit = Literal["time", "energy", "cost", "search", "early_stop", "interrupted"]
Source = Literal["measured", "estimated", "unavailable"]


class Figures(Frozen):
    """Figures of the work of a run, predicted or as they came; what is not known is None.

    The work is tuning and training: ingestion, profiling and selection are left out.
    """

    seconds: float | None = Field(default=None, gt=0)
    joules: float | None = Field(default=None, gt=0)
    joules_source: Source | None = Field(default=None, description="A counter or sensor, or a model of the power.")
    step_seconds: float | None = Field(default=None, gt=0)
    step_seconds_source: Source | None = None
    memory_bytes: int | None = Field(default=None, gt=0, description="Most that was used, or is expected to be.")
    memory_source: Source | None = None


class Ending(Frozen):
    """How a run ended, as far as later choices care."""

    outcome: Outcome = Field(
        description="`reached`: finished, and good enough where a quality was asked for; `missed`: finished below it; "
        "`stopped`: ended before by a limit; `failed`: ended by an error."
    )
    limit: Limit | None = Field(default=None, description="Which limit stopped it; None where none did.")
    reason: str = Field(default="", description="What stopped it or went wrong, in one line.")
    out_of_memory: bool = Field(default=False, description="Whether it failed for want of memory.")


class TooLarge(Frozen):
    """A placement whose accelerator had too little memory."""

    placement: Placement
    accelerator_memory_bytes: int


class Evidence(Ending):
    """What one run teaches; version 1 of the record."""

    version: Literal[1] = 1
    kind: EvidenceKind
    data: str = Field(default="", description="Which data, by `data_key`; empty when unknown.")
    family: str | None = Field(default=None, description="Model family.")
    placement: Placement | None = None
    auc: float | None = Field(default=None, ge=0, le=1, description="Reached on the validation part.")
    asked_auc: float | None = Field(default=None, ge=0, le=1, description="Least AUC asked for; None for any.")
    epochs: float | None = Field(
        default=None, ge=0, description="Passes over the training part, of all trials and members."
    )
    planned_epochs: float | None = Field(default=None, gt=0, description="The same, as they were planned for.")
    planned_seconds: float | None = Field(
        default=None, gt=0, description="Time of the work if it takes all the planned epochs; None when unknown."
    )
    predicted: Figures = Figures()
    measured: Figures = Figures()
    total_seconds: float | None = Field(default=None, gt=0, description="The whole flow, earlier attempts included.")
    total_joules: float | None = Field(default=None, gt=0, description="The same; source as of the measured joules.")
    cost: float | None = Field(default=None, ge=0, description="Of the whole flow, by the price of the request.")
    compiled: bool | None = Field(default=None, description="Whether its steps were compiled; None without a training.")
    too_large: tuple[TooLarge, ...] = Field(
        default=(), description="Where a probe or the run itself found too little memory."
    )
    known: bool | None = Field(
        default=None, description="Whether earlier runs of the same job taught its choice; None without a choice."
    )

    @property
    def is_censored(self) -> bool:
        """Whether more work would have been needed, so that what it took is a lower bound only."""
        return self.outcome != "reached"

    @property
    def work_share(self) -> float | None:
        """Part of the planned work that was done: of its epochs, or else of its time; None where neither is known."""
        if self.epochs and self.planned_epochs:
            return self.epochs / self.planned_epochs
        seconds, planned = self.measured.seconds, self.planned_seconds or self.predicted.seconds
        return None if seconds is None or planned is None else seconds / planned


def data_key(params: Mapping[str, object]) -> str:
    """What tells whether two runs train on the same kind of data: name and fields; empty where they are not known.

    Not the fingerprint: tomorrow's log of the same source is what is learned for, and another seed splits it anew.

    Args:
        params: Parameters `data.*` of the convention.
    """
    names = ("data.name", "data.dense_features", "data.categorical_features")
    return "" if any(name not in params for name in names) else " ".join(str(params[name]) for name in names)


def ending_of(
    *,
    auc: float | None = None,
    asked_auc: float | None = None,
    reason: StopReason | None = None,
    error: BaseException | None = None,
) -> Ending:
    """Return how a run ended.

    Args:
        auc: AUC on the validation part; None where none was measured.
        asked_auc: Least AUC asked for; None for any.
        reason: What ended its training; the schedule's own end is no limit.
        error: What it raised; None where it came to its end.
    """
    if isinstance(error, QualityMissedError):
        auc, error = error.auc, None
    if error is None:
        if asked_auc is not None and auc is not None and auc >= asked_auc:
            return Ending(outcome="reached")
        if reason is not None and (limit := limit_of(reason)) is not None:
            return Ending(outcome="stopped", limit=limit, reason=_line(stop_text(reason)))
        return Ending(outcome="reached" if asked_auc is None else "missed")
    # Ctrl-C, a cancelled flow, the end of a process: someone's wish
    if isinstance(error, ProcessLostError) or not isinstance(error, Exception):
        return Ending(outcome="stopped", limit="interrupted", reason=_line(str(error) or type(error).__name__))
    reason = reason or (error.reason if isinstance(error, StoppedError) else None)
    if reason is not None and (limit := limit_of(reason)) is not None:
        return Ending(outcome="stopped", limit=limit, reason=_line(first_line(error)))
    return Ending(outcome="failed", reason=_line(first_line(error)), out_of_memory=_ran_out_of_memory(error))


def limit_of(reason: StopReason) -> Limit | None:
    """Return the limit that a reason counts as in the record; None for the end of a schedule or of all trials."""
    match reason.kind:
        case StopKind.LIMIT:
            assert reason.limit is not None, "a limit of the request names its quantity"
            return reason.limit.value
        case StopKind.SEARCH_BUDGET:
            return "search"
        case StopKind.EXPLORATION | StopKind.PRUNED | StopKind.LOOK | StopKind.SHARE | StopKind.INTERRUPTED:
            return "early_stop"
        case _:
            return None


def log_evidence(run_id: str, evidence: Evidence) -> None:
    """Keep the record with its run; that of an earlier attempt is replaced.

    Raises:
        TrackingError: the store fails.
    """
    open_run(run_id).set_tags(evidence_tags(evidence))


def evidence_tags(evidence: Evidence) -> dict[str, str]:
    """The tag that keeps the record."""
    kept = evidence.model_dump(mode="json", exclude_defaults=True)
    return {EVIDENCE: compact_json({"version": evidence.version, **kept})}


def read_evidence(tags: Mapping[str, str]) -> Evidence | None:
    """What `evidence_tags` wrote; None for a run of before there was a record, or one that was killed.

    Raises:
        TrackingError: the tag holds no record, or one of a later version.
    """
    if EVIDENCE not in tags:
        return None
    try:
        kept = json.loads(tags[EVIDENCE])
        if kept["version"] != 1:
            raise TrackingError(f"The tag {EVIDENCE} is of version {kept['version']}, and version 1 is read.")
        return Evidence.model_validate(kept)
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        raise TrackingError(
            f"The tag {EVIDENCE} holds no record: it was changed by hand or by another program."
        ) from error


def _ran_out_of_memory(error: BaseException) -> bool:
    """Whether the error, or one that it follows from, is about memory."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TooLargeError) or is_out_of_memory(cause):
            return True
        cause = cause.__cause__
    return False


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_REASON]
