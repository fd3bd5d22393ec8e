"""Decisions after the first one: whether to wait for a placement in use, and on which placement a training continues.

During a training run only placements are compared that do not change the trained model.
"""

from collections.abc import Callable, Mapping
from math import inf

from shunter.hardware.types import Placement, Prediction
from shunter.planner.assessment import Assessment, Candidate
from shunter.planner.decide import Decision, NoFeasiblePlacementError, decide
from shunter.requests import Weights

LEAST_GAIN = 0.05  # of the objective: a smaller gain is within the noise


def alternatives(decision: Decision, placement: Placement) -> list[Placement]:
    """Return candidates that differ from `placement` only in threads, including `placement`, fewest threads first.

    Batch size and precision would change the trained model. Interop threads cannot change after torch has started them.
    The number of prefetched batches and reader threads follows from times measured in training.
    """
    same = {"threads": placement.threads}
    found = {
        row.candidate.placement.threads: placement.model_copy(update={"threads": row.candidate.placement.threads})
        for row in decision.table
        if row.candidate.is_here and row.candidate.fits and row.candidate.placement.model_copy(update=same) == placement
    }
    found[placement.threads] = placement
    return [found[threads] for threads in sorted(found)]


def redecide(decision: Decision, placement: Placement, step_seconds: Mapping[Placement, float]) -> Placement:
    """Choose the placement for the rest of the training, with the limits and the objective of the first decision.

    The current placement stays unless it breaks a limit that another placement keeps, or another placement has a
    clearly lower objective. If all break a limit, the fastest is returned.

    Args:
        decision: Decision before the training.
        placement: Current placement.
        step_seconds: Step times measured during training, for `placement` and other placements of the decision's table.
    """
    rows = {row.candidate.placement: row.candidate for row in decision.table}
    candidates = [_measured(rows[tried], seconds) for tried, seconds in step_seconds.items() if tried in rows]
    if not candidates:
        return placement
    try:
        again = decide(candidates, decision.terms)
    except NoFeasiblePlacementError as error:
        return error.fastest.candidate.placement
    present = [row for row in again.table if row.candidate.placement == placement]
    if present and _is_as_good(present[0], again, Weights.parse(decision.objective)):
        return placement
    return again.placement


def _is_as_good(present: Assessment, again: Decision, weights: Weights) -> bool:
    return not present.excluded_by and again.chosen.score(weights) > (1 - LEAST_GAIN) * present.score(weights)


def _measured(candidate: Candidate, step_seconds: float) -> Candidate:
    """Return the candidate with a step time measured during training, and with the predicted power."""
    prediction: Prediction = candidate.prediction
    scale = step_seconds / prediction.step_seconds
    joules = prediction.epoch_joules
    update = {
        "step_seconds": step_seconds,
        "epoch_seconds": prediction.epoch_seconds * scale,
        "epoch_joules": None if joules is None else joules * scale,
        "samples_per_second": prediction.samples_per_second / scale,
        "step_seconds_source": "measured",
        "step_seconds_interval": None,
    }
    return candidate.model_copy(update={"prediction": prediction.model_copy(update=update)})


def is_better_now(decision: Decision, is_free: Callable[[Placement], bool], wait_hours: Mapping[str, float]) -> bool:
    """Return True if starting on the best free placement is no worse than waiting for the best placement in use.

    The rule of a single-node scheduler: the wait counts as time of the job, in the job's objective. If the objective
    ignores time, waiting costs nothing, so a free placement must be as good as the best one.

    Args:
        decision: Table of all placements, as if all were free.
        is_free: Whether a placement is available now.
        wait_hours: Hours until an accelerator in use becomes free, by name; accelerators without an entry are free now.
    """
    weights = Weights.parse(decision.objective)

    def score(row: Assessment, wait: float) -> float:
        return row.score(weights) * ((wait + row.hours) / row.hours) ** weights.time if row.hours else 0.0

    rows = [row for row in decision.table if row.candidate.is_here and not row.excluded_by]
    now = min((score(row, 0.0) for row in rows if is_free(row.candidate.placement)), default=inf)
    later = min(
        (
            score(row, wait_hours.get(row.candidate.placement.accelerator, 0.0))
            for row in rows
            if not is_free(row.candidate.placement)
        ),
        default=inf,
    )
    return now < inf and now <= later
