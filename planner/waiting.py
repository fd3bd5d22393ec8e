"""Decision whether to start on a free placement now, or to wait for a better placement that is in use."""

from collections.abc import Callable, Mapping
from math import inf

from shunter.hardware.types import Placement
from shunter.planner.assessment import Assessment
from shunter.planner.decide import Decision
from shunter.requests import Weights


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
