"""Early stopping by successive halving; its resource is the number of samples that a training run has seen.

The first rung is a share of the first pass over the data, and the next rungs are at 3, 9, ... times as many samples. At
a rung a training run continues if it is among the best third of the runs that have reached the rung so far. Runs do not
wait for each other (asynchronous successive halving).
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shunter.search.study.interrupted import was_interrupted

if TYPE_CHECKING:
    from optuna import Study, Trial

REDUCTION_FACTOR = 3  # `shunter.tasks.select` uses the same factor to estimate the size of the job
RUNG = "rung:"  # prefix of a trial attribute, before the number of a rung: NE and cost of the trial at that rung
ALIKE = "rung of {most}:"  # like RUNG, for trials with a shorter schedule, which end after `most` units
SHARES = (1 / 9, 1 / 3)
# With fewer samples the result depends more on chance than on the setting, and stopping early would save little time.
LEAST_SAMPLES = 50_000

Point = tuple[float, ...]


def checks_for(rows: int) -> tuple[float, ...]:
    """Return the shares of the first pass, such as 1/9, after which training runs are compared; none on little data."""
    return tuple(share for share in SHARES if share * rows >= LEAST_SAMPLES)


class Halving:
    """Early stopping of training runs; the study has its whole state, so that machines share it and it survives a kill.

    With one objective Optuna's Hyperband decides: Li et al., JMLR 18, 2018. Optuna does not prune with two objectives,
    so the rule of Schmucker et al., "Multi-objective Asynchronous Successive Halving", arXiv 2106.12639, section 4, is
    used: non-dominated sorting, and within a front an epsilon-net.

    A training run with a shorter cosine schedule is better than longer runs at each rung, but does not improve later.
    It is compared only with training runs of the same length.

    Args:
        study: Study of the search.
        checks: Shares of the first epoch after which a training run is validated.
        max_epochs: Number of epochs of the longest training.
        own_epochs: Number of epochs of the compared trial, if fewer; None means `max_epochs`.
        peers: Numbers of the trials that run at the same time. Peers are not compared with each other, so that the
            outcome does not depend on their speed. Successive halving by rungs then replaces Hyperband, which would
            compare all trials.
    """

    def __init__(
        self,
        study: "Study",
        checks: tuple[float, ...],
        max_epochs: int,
        own_epochs: int | None = None,
        peers: frozenset[int] = frozenset(),
    ) -> None:
        from optuna.pruners import HyperbandPruner

        self._study, self._peers = study, peers
        self._units_a_pass = round(1 / min(checks)) if checks else 1
        self._most = max_epochs * self._units_a_pass
        self._own_most = self._most if own_epochs is None else own_epochs * self._units_a_pass
        if not is_multi_objective(study):
            study.pruner = HyperbandPruner(min_resource=1, max_resource=self._most, reduction_factor=REDUCTION_FACTOR)

    def is_beaten(self, trial: "Trial", passes: float, loss: float, cost: float | None) -> bool:
        """Return True if a training run should stop now; False after its last epoch.

        Args:
            trial: Trial of the training run.
            passes: Number of passes over the training part so far.
            loss: Validation NE, or another selection metric as a loss.
            cost: Cost of the point, used with two objectives; None if not yet known.
        """
        resource = round(passes * self._units_a_pass)
        if is_multi_objective(self._study):
            return cost is not None and self._is_beaten_at_rung(trial, resource, (loss, cost))
        if self._own_most < self._most or self._peers:
            return self._is_beaten_at_rung(trial, resource, (loss,))
        if resource == 0 or resource in trial.storage.get_trial(trial._trial_id).intermediate_values:
            return False
        trial.report(loss, step=resource)
        return resource < self._most and trial.should_prune()

    def _is_beaten_at_rung(self, trial: "Trial", resource: int, point: Point) -> bool:
        if resource >= self._own_most:
            return False
        prefix = RUNG if self._own_most == self._most else ALIKE.format(most=self._own_most)
        # Rungs are at 1, 3, 9, ... units.
        reached = 0 if resource < 1 else 1 + math.floor(math.log(resource, REDUCTION_FACTOR) + 1e-9)
        for attribute in (f"{prefix}{rung}" for rung in range(reached)):
            if attribute not in trial.user_attrs:
                trial.set_user_attr(attribute, point)
                others = [
                    tuple(other.user_attrs[attribute])
                    for other in self._study.get_trials(deepcopy=False)
                    if other.number not in self._peers | {trial.number}
                    and attribute in other.user_attrs
                    and not was_interrupted(other)
                ]
                if not passes_rung(point, others):
                    return True
        return False


def is_multi_objective(study: "Study") -> bool:
    """Return True if a study has a cost as second objective besides NE."""
    return len(study.directions) > 1


def passes_rung(point: Point, others: Sequence[Point]) -> bool:
    """Return True if a point is among the best third of the points at its rung; the first point always is."""
    points = [*others, point]
    return best_first(points).index(len(others)) < max(1, len(points) // REDUCTION_FACTOR)


def best_first(points: Sequence[Point]) -> list[int]:
    """Return the indices of points from the best to the worst; all objectives are minimised.

    Points are ordered front by front. Within a front the point with the lowest first objective is first. The next
    point is always the one farthest from all points before it, with objectives scaled to their range (epsilon-net).
    """

    def is_dominated(place: int, left: Sequence[int]) -> bool:
        own, others = points[place], (points[other] for other in left)
        return any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in others)

    ordered, left = [], list(range(len(points)))
    while left:
        front = [place for place in left if not is_dominated(place, left)]
        ordered += _spread(points, front)
        left = [place for place in left if place not in front]
    return ordered


def _spread(points: Sequence[Point], front: Sequence[int]) -> list[int]:
    scales = [(max(axis) - min(axis)) or 1.0 for axis in zip(*(points[place] for place in front), strict=True)]

    def distance(place: int, other: int) -> float:
        return math.hypot(*((a - b) / by for a, b, by in zip(points[place], points[other], scales, strict=True)))

    chosen = [min(front, key=lambda place: (points[place], place))]
    while len(chosen) < len(front):
        left = [place for place in front if place not in chosen]
        chosen.append(max(left, key=lambda place: (min(distance(place, other) for other in chosen), -place)))
    return chosen
