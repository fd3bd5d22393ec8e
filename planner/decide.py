"""Decision: a pure function from candidates with predictions to the chosen candidate and the reason.

This module measures nothing and reads neither clock nor machine, so that tests can be tables of inputs and outputs.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from shunter.errors import InfeasibleError
from shunter.frozen import Frozen
from shunter.hardware.cost.grid import Grid
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import Placement, Prediction, Workload
from shunter.hardware.units import JOULES_PER_KWH
from shunter.planner.assessment import Assessment, Candidate, LimitViolation
from shunter.planner.calibration import UNCALIBRATED, Calibration
from shunter.planner.explain.sentences import explain, explain_infeasible, reason
from shunter.planner.explain.table import shown_row, table_row
from shunter.planner.job_size import JobSize
from shunter.planner.rank.checks import Relaxation, nearest_relaxations
from shunter.planner.rank.ranking import rank, shortened
from shunter.planner.rank.totals import Terms, parallel_seconds, totals_of, trial_seconds
from shunter.requests import Billing, Limits, Weights

__all__ = ["Assessment", "Candidate", "Decision", "LimitViolation", "NoFeasiblePlacementError", "decide"]


class Exploration(Frozen):
    """Plan to run a training job at a placement other than the incumbent, within limits, to learn from it."""

    best_known: Placement
    paired: Placement | None = Field(
        default=None,
        description="Placement of the additional exploring trial; None if the search has only one trial, which then "
        "explores.",
    )
    stop_multiple: float = Field(
        description="Multiple of the incumbent's time or energy at which the exploring trial is stopped."
    )
    stop_hours: float = Field(description="Hours after which the exploring trial is stopped.")
    chance: float | None = Field(
        default=None, description="Probability that the exploration pays off in the expected later runs."
    )


class Decision(Frozen):
    """Chosen placement, its prediction, and the assessment of every other candidate."""

    placement: Placement
    prediction: Prediction
    objective: str = Field(description="Objective as in the request: `time`, or weights such as `time=1,energy=0.5`.")
    limits: Limits
    job: JobSize
    billing: Billing = Billing.EXACT
    grid: Grid | None = Field(default=None, description="Carbon intensity of the electricity; None if unknown.")
    calibration: Calibration = Field(
        default=UNCALIBRATED, description="Measured over predicted totals of past runs, which correct the predictions."
    )
    workload: Workload | None = Field(
        default=None,
        description="Compute and memory demand of the training job; None if candidates were compared without a job.",
    )
    hours: float
    kwh: float | None
    cost: float | None
    memory_gib: float
    table: tuple[Assessment, ...] = Field(
        description="Assessments of the candidates, the chosen one first; a very long table is shortened."
    )
    considered: int = Field(description="Number of candidates that were assessed.")
    feasible: int = Field(description="Number of candidates that meet all limits.")
    binds: str | None = Field(
        description="Limit that excluded a candidate with a better objective; None if no limit did."
    )
    reason: str = Field(description="Reason for the chosen placement, in one sentence.")
    explanation: str = Field(
        default="",
        description="Reason for the choice, alternatives, certainty, binding limit, and what would change the choice.",
    )
    notes: tuple[str, ...] = Field(default=(), description="Further information for the user, one sentence each.")
    observations: tuple[StepObservation, ...] = Field(default=(), description="Step times measured for this decision.")
    too_large: tuple[Placement, ...] = Field(default=(), description="Placements at which a probe ran out of memory.")
    tier_miss_rate: float | None = Field(
        default=None,
        description="Share of a batch's distinct embedding rows that are read from a file, estimated; None if the "
        "tables are in memory.",
        exclude_if=lambda value: value is None,
    )
    tier_highest_miss_rate: float | None = Field(
        default=None,
        description="Largest share of a batch's distinct embedding rows that one process reads from a file, estimated; "
        "None if one process trains.",
        exclude_if=lambda value: value is None,
    )
    shortened_by: tuple[LimitViolation, ...] = Field(
        default=(),
        description="Limits that are expected to stop search and training early.",
        exclude_if=lambda value: not value,
    )
    exploration: Exploration | None = Field(
        default=None, description="Exploration of a placement other than the incumbent, if the job explores."
    )
    run_id: str | None = Field(
        default=None,
        description="MLflow run of a decision made by `shunter select`; None within a training job.",
        exclude_if=lambda value: value is None,
    )

    @property
    def terms(self) -> Terms:
        """Return the limits, objective, job size, billing and calibration by which the candidates were compared."""
        return Terms.of(
            self.limits, self.objective, self.job, self.billing, grid=self.grid, calibration=self.calibration
        )

    @property
    def is_upper_estimate(self) -> bool:
        """Return True if the totals are of all planned epochs, since no past run shows how many are needed."""
        return self.chosen.candidate.work_log_deviation is None

    @property
    def watched_limits(self) -> Limits:
        """Return the limits that stop tuning and training: the user's, and the time limit of an exploration."""
        if (
            self.exploration is None
            or self.exploration.paired
            or (self.limits.max_hours or math.inf) <= self.exploration.stop_hours
        ):
            return self.limits
        return self.limits.model_copy(update={"max_hours": self.exploration.stop_hours})

    @property
    def is_exploration(self) -> bool:
        """Return True if the only trial of the run explores the chosen placement."""
        return self.exploration is not None and self.exploration.paired is None

    @property
    def plan_seconds(self) -> float:
        """Return the uncalibrated seconds of the whole job if all planned epochs are trained."""
        return self._uncalibrated(self.chosen.candidate.model_copy(update={"work_share": 1.0}))[0]

    @property
    def trials_at_once(self) -> int:
        """Return how many trials of the search run at the same time."""
        chosen = self.chosen.candidate
        epoch_seconds = chosen.prediction.epoch_seconds * chosen.work_share * chosen.searched_share
        seconds = trial_seconds(self.job, np.array([epoch_seconds]))
        is_parallel = parallel_seconds(seconds, np.array([float(chosen.trials_at_once)])) < seconds
        return chosen.trials_at_once if is_parallel.item() else 1

    @property
    def uncalibrated(self) -> tuple[float, float | None]:
        """Return (seconds, joules) predicted for the whole job without calibration, to compare with measurements."""
        return self._uncalibrated(self.chosen.candidate)

    def _uncalibrated(self, candidate: Candidate) -> tuple[float, float | None]:
        totals = totals_of([candidate], replace(self.terms, calibration=UNCALIBRATED))
        joules = float(totals.kwh[0]) * JOULES_PER_KWH
        return float(totals.hours[0]) * 3600, None if math.isnan(joules) else joules

    @property
    def given_price_per_hour(self) -> float | None:
        """Return the hourly price of the chosen placement on all its machines; None if the user gave no price."""
        chosen = self.chosen.candidate
        if chosen.price_per_hour is None or chosen.price_source != "given":
            return None
        return chosen.price_per_hour * chosen.machines

    @property
    def chosen(self) -> Assessment:
        """Return the row of the chosen placement."""
        return self.table[0]

    def weighed(self, row: Assessment) -> float:
        """Return the weighted objective of a row of the table; infinite if unknown."""
        used = Weights.parse(self.objective).used
        totals = [(row.total(quantity), weight) for quantity, weight in used.items()]
        return math.prod(math.inf if total is None else total**weight for total, weight in totals)

    def table_rows(self) -> list[dict[str, str | int | float | bool | None]]:
        """Return the table as flat dictionaries with units in the keys, the chosen placement first."""
        weights = Weights.parse(self.objective)
        return [table_row(assessment, self.table[0], weights) for assessment in self.table]

    def shown_rows(self) -> list[dict[str, str]]:
        """Return the table for display: few columns, figures with units, the chosen placement first."""
        weights = Weights.parse(self.objective)
        rows = [shown_row(assessment, self.table[0], weights) for assessment in self.table]
        explored = self.exploration and (self.exploration.paired or self.placement)
        for row, shown in zip(self.table, rows, strict=True):
            if self.exploration and row.candidate.placement == explored:
                shown["why"] = f"exploration, in addition to {self.exploration.best_known.label}"
        return rows


class NoFeasiblePlacementError(InfeasibleError):
    """Error that no candidate keeps the limits.

    Attributes:
        table: All candidates, the nearest first.
        relaxations: Limits that would have to be relaxed, singly if that suffices.
        fastest: Candidate of the shortest time, regardless of limits.
        shortfall_seconds: Excess of the fastest candidate over the time limit; None if it keeps the time limit.
        best_auc: Best validation AUC of past runs of the job; None if no AUC was requested or none is known.
    """

    code = "no-feasible-placement"

    def __init__(
        self,
        message: str,
        table: Sequence[Assessment],
        relaxations: Sequence[Relaxation],
        best_auc: float | None = None,
    ) -> None:
        super().__init__(message)
        self.best_auc = best_auc
        self.table, self.relaxations = tuple(table), tuple(relaxations)
        self.fastest = min(table, key=lambda row: row.hours)
        late = [miss for miss in self.fastest.excluded_by if miss.option == "--max-hours"]
        self.shortfall_seconds = None
        if late and late[0].value is not None and late[0].bound is not None:
            self.shortfall_seconds = (late[0].value - late[0].bound) * 3600

    def hinting(self, sentences: Sequence[str], best_auc: float | None = None) -> "NoFeasiblePlacementError":
        """Return a copy of the error with the sentences, and the best AUC of past runs, appended to its message."""
        if best_auc is not None:
            sentences = [f"Best AUC of past runs {best_auc:.4f}", *sentences]
        more = "".join(f"; {sentence[0].lower()}{sentence[1:].removesuffix('.')}" for sentence in sentences)
        return NoFeasiblePlacementError(f"{str(self).removesuffix('.')}{more}.", self.table, self.relaxations, best_auc)


def decide(
    candidates: Sequence[Candidate],
    terms: Terms,
    *,
    workload: Workload | None = None,
    notes: Sequence[str] = (),
    observations: Sequence[StepObservation] = (),
    too_large: Sequence[Placement] = (),
    may_end_early: bool = False,
) -> Decision:
    """Choose the candidate with the lowest objective among those that keep every limit.

    Ties go to the faster candidate, then to fewer machines, fewer threads, less memory.

    Args:
        candidates: Placements with their predictions, at least one.
        terms: Limits, objective and size of the job.
        workload: Demand, kept in the decision for the record.
        notes: Sentences stored in the decision and shown with its explanation.
        observations: Measured steps, kept in the decision for later choices to learn from.
        too_large: Placements at which a probe ran out of memory, kept in the decision too.
        may_end_early: Whether search and training may end at the limits on time, energy and cost. If no candidate keeps
            them, the nearest one is then chosen, as long as they leave an epoch of one model.

    Raises:
        NoFeasiblePlacementError: no candidate keeps the limits; the message names the nearest ones.
    """
    ranking = rank(candidates, terms)
    table = ranking.table
    if table[0].excluded_by:
        shorter = shortened(ranking, terms) if may_end_early else None
        if shorter is None:
            relaxations = nearest_relaxations(table)
            raise NoFeasiblePlacementError(explain_infeasible(ranking, relaxations), table, relaxations)
        ranking, table = shorter, shorter.table
    best = table[0]
    share = 1 / (1 + max((miss.excess for miss in ranking.shortened_by), default=0.0))
    binds = None if ranking.barred is None else _worst_miss(ranking.barred).limit
    return Decision(
        placement=best.candidate.placement,
        prediction=best.candidate.prediction,
        objective=terms.weights.text,
        limits=terms.limits,
        job=terms.job,
        billing=terms.billing,
        grid=terms.grid,
        calibration=terms.calibration,
        workload=workload,
        hours=share * best.hours,
        kwh=None if best.kwh is None else share * best.kwh,
        cost=None if best.cost is None else share * best.cost,
        memory_gib=best.memory_gib,
        table=table,
        shortened_by=ranking.shortened_by,
        considered=ranking.considered,
        feasible=ranking.feasible,
        binds=binds,
        reason=reason(ranking, terms, binds),
        explanation=explain(ranking, terms),
        notes=tuple(notes),
        observations=tuple(observations),
        too_large=tuple(too_large),
    )


def _worst_miss(row: Assessment) -> LimitViolation:
    """Return the broken limit with the largest excess share."""
    return max(row.excluded_by, key=lambda miss: miss.excess)
