"""Training records: request, prediction and outcome of one run, finished or not, as input for later predictions.

Each run stores one record as a JSON tag, so that the history is read with the runs. Predicted and measured figures have
the same names, so that every run shows the error of its prediction.
"""

import json
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, ValidationError

from shunter.engine.stopping import StopKind, StoppedError, StopReason
from shunter.engine.stopping_text import stop_text
from shunter.errors import ProcessLostError, QualityNotReachedError, TooLargeError, TrackingError, first_line
from shunter.frozen import Frozen
from shunter.hardware.types import Placement
from shunter.tracking.learning import compact_json
from shunter.tracking.runs import open_run

EVIDENCE = "learning.evidence"
LONGEST_REASON = 300

EvidenceKind = Literal["train", "nightly", "tune", "select", "trial", "member"]
Outcome = Literal["reached", "missed", "stopped", "failed"]
# Reasons for the end of a run: limits of the request, search budget, early stopping, and interruption by the user.
Limit = Literal["time", "energy", "cost", "search", "early_stop", "interrupted"]
Source = Literal["measured", "estimated", "unavailable"]


class Figures(Frozen):
    """Predicted or measured time, energy, step time and memory of a run; unknown figures are None.

    The work is tuning and training, without ingestion, profiling and selection.
    """

    seconds: float | None = Field(default=None, gt=0)
    joules: float | None = Field(default=None, gt=0)
    joules_source: Source | None = Field(
        default=None, description="Source of the energy figure: a counter or sensor, or a power model."
    )
    step_seconds: float | None = Field(default=None, gt=0)
    step_seconds_source: Source | None = None
    memory_bytes: int | None = Field(default=None, gt=0, description="Peak memory in bytes, used or predicted.")
    memory_source: Source | None = None


class Ending(Frozen):
    """End of a run: its outcome, and the limit or error that ended it."""

    outcome: Outcome = Field(
        description="How the run ended: `reached` (finished, with the requested quality if any), `missed` (finished "
        "below the requested quality), `stopped` (ended early by a limit), or `failed` (ended by an "
        "error)."
    )
    limit: Limit | None = Field(default=None, description="Limit that stopped the run; None if none did.")
    reason: str = Field(default="", description="Why the run stopped early or failed, in one line.")
    out_of_memory: bool = Field(default=False, description="Whether the run failed because memory was too small.")


class TooLarge(Frozen):
    """Placement whose accelerator had too little memory for the training job."""

    placement: Placement
    accelerator_memory_bytes: int


class PairedTrial(Frozen):
    """Trial of a search that repeated the setting and seed of another trial at another placement."""

    placement: Placement = Field(description="Placement of the trial that repeats the other trial.")
    beside: Placement = Field(description="Placement of the trial that is repeated.")
    seconds: float = Field(gt=0, description="Wall-clock time of the repeating trial, in seconds.")
    seconds_ratio: float = Field(
        gt=0, description="Wall-clock time of the repeating trial, divided by that of the repeated trial."
    )
    epochs_ratio: float = Field(
        gt=0, description="Number of epochs of the repeating trial, divided by that of the repeated trial."
    )
    ne_ratio: float | None = Field(
        default=None,
        gt=0,
        description="Validation NE of the repeating trial, divided by that of the repeated trial; None for ranking "
        "models.",
    )
    is_stopped: bool = Field(
        default=False, description="Whether a time limit stopped the repeating trial; its ratios are then lower bounds."
    )


class Evidence(Ending):
    """Training record of one run, in version 1 of the format."""

    version: Literal[1] = 1
    kind: EvidenceKind
    data: str = Field(default="", description="Key of the training data, as made by `data_key`; empty if unknown.")
    family: str | None = Field(default=None, description="Model family.")
    placement: Placement | None = None
    auc: float | None = Field(default=None, ge=0, le=1, description="AUC on the validation part.")
    ne: float | None = Field(default=None, gt=0, description="NE on the validation part.")
    asked_auc: float | None = Field(default=None, ge=0, le=1, description="Requested minimum AUC; None for no limit.")
    epochs: float | None = Field(default=None, ge=0, description="Epochs of all trials and members together.")
    planned_epochs: float | None = Field(default=None, gt=0, description="Planned epochs of all trials and members.")
    planned_seconds: float | None = Field(
        default=None, gt=0, description="Estimated time of all planned epochs, in seconds; None if unknown."
    )
    predicted: Figures = Figures()
    measured: Figures = Figures()
    total_seconds: float | None = Field(
        default=None, gt=0, description="Time of the whole flow in seconds, including earlier attempts."
    )
    total_joules: float | None = Field(
        default=None, gt=0, description="Energy of the whole flow in joules, including earlier attempts."
    )
    cost: float | None = Field(default=None, ge=0, description="Cost of the whole flow, at the requested price.")
    compiled: bool | None = Field(
        default=None, description="Whether the training steps were compiled; None if nothing was trained."
    )
    too_large: tuple[TooLarge, ...] = Field(
        default=(), description="Placements at which a probe or the run ran out of memory."
    )
    known: bool | None = Field(
        default=None,
        description="Whether earlier runs of the job informed the choice of placement; None without a choice.",
    )
    pair: PairedTrial | None = Field(default=None, description="Trial that explored another placement, if any.")

    @property
    def is_censored(self) -> bool:
        """Return True if the measured work is only a lower bound, since the run did not reach its goal."""
        return self.outcome != "reached"

    @property
    def work_share(self) -> float | None:
        """Completed share of the planned epochs, or of the planned or predicted time; None if unknown."""
        if self.epochs and self.planned_epochs:
            return self.epochs / self.planned_epochs
        seconds, planned = self.measured.seconds, self.planned_seconds or self.predicted.seconds
        return None if seconds is None or planned is None else seconds / planned


def data_key(params: Mapping[str, object]) -> str:
    """Return a key of the data set's name and its numbers of numeric and categorical fields; empty if unknown.

    The key excludes the fingerprint, since records also apply to later logs of the same source and to other seeds.

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
    """Return the outcome of a run, and the limit or error that ended it.

    Args:
        auc: AUC on the validation split; None if not measured.
        asked_auc: Smallest requested AUC; None for any.
        reason: Reason why the training stopped; None, or the end of the schedule, is not a limit.
        error: Error that the run raised; None for a completed run.
    """
    if isinstance(error, QualityNotReachedError):
        auc, error = error.auc, None
    if error is None:
        if asked_auc is not None and auc is not None and auc >= asked_auc:
            return Ending(outcome="reached")
        if reason is not None and (limit := limit_of(reason)) is not None:
            return Ending(outcome="stopped", limit=limit, reason=_line(stop_text(reason)))
        return Ending(outcome="reached" if asked_auc is None else "missed")
    # Ctrl-C, a cancelled flow and a lost process count as interruptions.
    if isinstance(error, ProcessLostError) or not isinstance(error, Exception):
        return Ending(outcome="stopped", limit="interrupted", reason=_line(str(error) or type(error).__name__))
    reason = reason or (error.reason if isinstance(error, StoppedError) else None)
    if reason is not None and (limit := limit_of(reason)) is not None:
        return Ending(outcome="stopped", limit=limit, reason=_line(first_line(error)))
    return Ending(outcome="failed", reason=_line(first_line(error)), out_of_memory=_ran_out_of_memory(error))


def limit_of(reason: StopReason) -> Limit | None:
    """Return the limit behind a stop reason; None for the end of the schedule or of all trials."""
    match reason.kind:
        case StopKind.LIMIT:
            assert reason.limit is not None, "a limit of the request names its quantity"
            return reason.limit.value
        case StopKind.SEARCH_BUDGET:
            return "search"
        case StopKind.EXPLORATION | StopKind.PRUNED | StopKind.SCREENING | StopKind.SHARE | StopKind.INTERRUPTED:
            return "early_stop"
        case _:
            return None


def log_evidence(run_id: str, evidence: Evidence) -> None:
    """Write the record as a tag of its run; the record of an earlier attempt is replaced.

    Raises:
        TrackingError: The store fails.
    """
    open_run(run_id).set_tags(evidence_tags(evidence))


def evidence_tags(evidence: Evidence) -> dict[str, str]:
    """Return the tag with the record as JSON."""
    kept = evidence.model_dump(mode="json", exclude_defaults=True)
    return {EVIDENCE: compact_json({"version": evidence.version, **kept})}


def read_evidence(tags: Mapping[str, str]) -> Evidence | None:
    """Return the record written by `evidence_tags`; None for a run without a record (an old or a killed run).

    Raises:
        TrackingError: The tag is not a valid record, or is a record of another version.
    """
    if EVIDENCE not in tags:
        return None
    try:
        kept = json.loads(tags[EVIDENCE])
        if kept["version"] != 1:
            raise TrackingError(
                f"The MLflow tag {EVIDENCE} has version {kept['version']} of its format, but only version 1 "
                "can be read."
            )
        return Evidence.model_validate(kept)
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        raise TrackingError(
            f"The MLflow tag {EVIDENCE} holds no training record: it was changed by hand or by another program."
        ) from error


def _ran_out_of_memory(error: BaseException) -> bool:
    """Return True if the error or one of its causes is a lack of memory."""
    from shunter.engine.memory import is_out_of_memory

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TooLargeError) or is_out_of_memory(cause):
            return True
        cause = cause.__cause__
    return False


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_REASON]
