"""What later choices learn from: the step times of a run beside what the cost model had said of them.

They are kept as one JSON tag, so that a whole history comes with one query and needs no file.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from shunter.errors import TrackingError
from shunter.hardware.cost.residual import StepObservation
from shunter.tracking.runs import LONGEST_TAG, open_run

STEPS = "learning.steps"
# A workload's lists of products and accesses are long, and nothing is learned from them.
_LISTS = {"workload": {"matmuls", "dense", "access_curve"}}


def log_steps(run_id: str, observations: Sequence[StepObservation]) -> None:
    """Keep what was observed; nothing for none.

    Raises:
        TrackingError: the store fails.
    """
    if observations:
        open_run(run_id).set_tags(step_tags(observations))


def step_tags(observations: Sequence[StepObservation]) -> dict[str, str]:
    """The tag that keeps the observations, the last of them where not all have room; at least one."""
    kept = list(observations)
    while len(kept) > 1 and len(_text(kept)) > LONGEST_TAG:
        kept.pop(0)
    return {STEPS: _text(kept)}


def read_steps(tags: Mapping[str, str]) -> tuple[StepObservation, ...]:
    """What `step_tags` wrote; empty for a run that observed none.

    Raises:
        TrackingError: the tag does not hold observations.
    """
    if STEPS not in tags:
        return ()
    try:
        kept = json.loads(tags[STEPS])
        return tuple(StepObservation.model_validate({**kept["of"], **step}) for step in kept["steps"])
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        raise TrackingError(
            f"The tag {STEPS} holds no step times: it was changed by hand or by another program."
        ) from error


def _text(observations: Sequence[StepObservation]) -> str:
    """Compact: what all observations share is said once, figures have five digits."""
    rows: list[dict[str, Any]] = [
        observation.model_dump(mode="json", exclude=_LISTS, exclude_defaults=True) for observation in observations
    ]
    shared = {name: value for name, value in rows[0].items() if all(row.get(name) == value for row in rows)}
    steps = [{name: value for name, value in row.items() if name not in shared} for row in rows]
    return compact_json({"of": shared, "steps": steps})


def compact_json(value: Any) -> str:
    """JSON without spaces, fractions with five digits."""
    return json.dumps(_rounded(value), separators=(",", ":"))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value
