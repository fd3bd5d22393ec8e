"""Whether a training should begin on what is free, or wait for something better that others use."""

from collections.abc import Callable, Mapping
from math import inf

from shunter.hardware.types import Placement
from shunter.planner.assessment import Assessment
from shunter.planner.decide import Decision
from shunter.requests import Weights


def is_better_now(decision: Decision, is_free: Callable[[Placement], bool], wait_hours: Mapping[str, float]) -> bool:
    """Whether the best placement that is free now is no worse than the best one that others use, with the wait for it.

    The rule of a scheduler for one node: whoever waits counts the wait as time of the job, in the objective that it
    was given. Where time does not count, only the best placement is begun.

    Args:
        decision: The table of all placements, as if all were free.
        is_free: Whether a placement can be had now.
        wait_hours: Until an accelerator that others use is free, by its name; one that is not named is by now.
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
