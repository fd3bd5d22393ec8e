"""Repeated decision during a training run, among placements that do not change the trained model."""

from collections.abc import Mapping

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
