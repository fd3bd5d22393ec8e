"""Observed step times of a run with the predictions of the cost model, as training data for later predictions.

The observations are stored as one JSON tag, so that one query returns the whole history without further files.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from shunter.errors import TrackingError
from shunter.hardware.cost.residual import StepObservation
from shunter.tracking.runs import LONGEST_TAG, open_run

STEPS = "learning.steps"
# The lists of matrix products and accesses of a workload are long, and predictions do not use them.
_LISTS = {"workload": {"matmuls", "dense", "access_curve"}}


def log_steps(run_id: str, observations: Sequence[StepObservation]) -> None:
    """Write the observations as a tag of the run; do nothing without observations.

    Raises:
        TrackingError: the store fails.
    """
    if observations:
        open_run(run_id).set_tags(step_tags(observations))


def step_tags(observations: Sequence[StepObservation]) -> dict[str, str]:
    """Return the tag with the observations; the oldest are left out if the text exceeds `LONGEST_TAG` characters."""
    kept = list(observations)
    while len(kept) > 1 and len(_text(kept)) > LONGEST_TAG:
        kept.pop(0)
    return {STEPS: _text(kept)}


def read_steps(tags: Mapping[str, str]) -> tuple[StepObservation, ...]:
    """Return the observations written by `step_tags`; empty for a run without observations.

    Raises:
        TrackingError: The tag has no valid observations.
    """
    if STEPS not in tags:
        return ()
    try:
        kept = json.loads(tags[STEPS])
        return tuple(StepObservation.model_validate({**kept["of"], **step}) for step in kept["steps"])
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        raise TrackingError(
            f"The MLflow tag {STEPS} holds no step times: it was changed by hand or by another program."
        ) from error


def _text(observations: Sequence[StepObservation]) -> str:
    """Return compact JSON: values common to all observations are stored once, floats have five digits."""
    rows: list[dict[str, Any]] = [
        observation.model_dump(mode="json", exclude=_LISTS, exclude_defaults=True) for observation in observations
    ]
    shared = {name: value for name, value in rows[0].items() if all(row.get(name) == value for row in rows)}
    steps = [{name: value for name, value in row.items() if name not in shared} for row in rows]
    return compact_json({"of": shared, "steps": steps})


def compact_json(value: Any) -> str:
    """Return JSON without spaces, with floats rounded to five significant digits."""
    return json.dumps(_rounded(value), separators=(",", ":"))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
