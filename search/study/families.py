"""Successive halving over families: a brief run of each, full runs while time allows, then the best two.

The first points of several families would use up a short search. Each family's default is therefore first trained on
few samples, the same number for all families (Jamieson and Talwalkar, AISTATS 2016, with families as arms). This brief
training run is called the screening of the family.

A screening shows which family learns fast, not which family has the best final result. So the first points of the
families are trained in full, in the order of the screenings. The best two families are always trained in full, further
families within a share of the budget. On large logs the first point is the regularised one (`HELD_BACK`). If its result
is worse than the screening of its family, the families that have not begun start with their defaults instead.

The two families with the best result continue: first with their other first points, then with sampled points.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from shunter.engine.config import Schedule
from shunter.search.protocol import BudgetLeft, Parameters
from shunter.search.space.settings import SearchSpace
from shunter.search.study.storage import has_result, lowest_loss

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

FINALISTS = 2
LEAST_SAMPLES = 100_000  # samples of a screening: with fewer samples, chance matters more than the family
FEWEST_LEFT = FINALISTS  # trials that must remain after the screenings, for full training runs of the best two
FAIR_SHARE = 0.25  # share of the budget up to which more than two families are trained in full


@dataclass(frozen=True)
class FamilyComparison:
    """Order in which families are tried, and choice of the two that continue; the study's trials are its only state.

    Attributes:
        space: Space with several families.
        passes: Passes over the training part in a screening.
    """

    space: SearchSpace
    passes: float

    @classmethod
    def of(cls, space: SearchSpace, rows: int, schedule: Schedule, trials: int | None) -> "FamilyComparison | None":
        """Return the comparison of a search's families; None if the comparison would save nothing.

        Args:
            space: Search space.
            rows: Number of rows of the training part.
            schedule: Longest training, and its validations within the first pass.
            trials: Budget in trials; None: no limit.
        """
        if len(space.families) <= FINALISTS:
            return None
        wanted = LEAST_SAMPLES / max(1, rows)
        passes = min((share for share in schedule.checks if share >= wanted), default=math.ceil(wanted))
        is_short = trials is not None and trials < len(space.families) + FEWEST_LEFT
        return None if is_short or passes >= schedule.max_epochs else cls(space, passes)

    @cached_property
    def screenings(self) -> list[Parameters]:
        """Point of the screening of each family."""
        return [self.space.default(family) for family in self.space.families]

    def is_screening(self, number: int, parameters: Parameters, trials: "Sequence[FrozenTrial]") -> bool:
        """Return True if a trial, by its number and point, is the first of `trials` at the default of its family."""
        return parameters in self.screenings and not any(
            trial.params == parameters for trial in trials if trial.number < number
        )

    def is_final(self, number: int, parameters: Parameters, trials: "Sequence[FrozenTrial]") -> bool:
        """Return True if a trial is trained in full whatever its intermediate results are."""
        own = [*self._firsts(trials).values(), *self._seconds(trials)]
        return parameters in own and not self.is_screening(number, parameters, trials)

    def next(self, trials: "Sequence[FrozenTrial]", left: BudgetLeft) -> Parameters | None:
        """Return the next screening, or the next point to train in full; None if all of them have begun."""
        tried = [trial.params for trial in trials]
        for point in self.screenings:
            if point not in tried:
                return point
        firsts = self._firsts(trials)
        for place, family in enumerate(self._by_screenings(trials)):
            if self._has_begun(firsts[family], tried):
                continue
            if place >= FINALISTS and not self._is_affordable(trials, left):
                break
            return firsts[family]
        return next((point for point in self._seconds(trials) if not self._has_begun(point, tried)), None)

    def finalists(self, trials: "Sequence[FrozenTrial]") -> list[str]:
        """Return the two best families, the best first; all families if fewer than two have a result.

        A family's result is the better of its full training run and its screening. Before two families have a full
        training run, only the screenings count.
        """
        screenings = self._screening_losses(trials)
        reached = {
            family: min(lowest_loss(trial), screenings.get(family, math.inf))
            for family, trial in self._whole(trials).items()
            if has_result(trial)
        }
        best = sorted(reached, key=lambda family: reached[family])
        return (best if len(best) >= FINALISTS else self._by_screenings(trials))[:FINALISTS]

    def _firsts(self, trials: "Sequence[FrozenTrial]") -> dict[str, Parameters]:
        """Return for each family the point that is trained in full first."""
        begun = {family: trial.params for family, trial in self._whole(trials).items()}
        screenings = self._screening_losses(trials)
        is_out = any(  # the result of a point other than the default is worse than the screening of its family
            lowest_loss(trial) > screenings.get(family, math.inf)
            for family, trial in self._whole(trials).items()
            if has_result(trial) and trial.params not in self.screenings
        )
        if is_out:
            others = {family: self.space.default(family) for family in self.space.families}
        else:
            others = {family: self.space.points(family)[0] for family in self.space.families}
        return {**others, **begun}

    def _seconds(self, trials: "Sequence[FrozenTrial]") -> list[Parameters]:
        """Return the points to try first of the families that continue, except the points that `_firsts` returns."""
        firsts = self._firsts(trials)
        points = ((family, point) for family in self.finalists(trials) for point in self.space.points(family))
        return [point for family, point in points if point != firsts[family]]

    def _by_screenings(self, trials: "Sequence[FrozenTrial]") -> list[str]:
        """Return the families whose screening has a result, best first; all families if fewer than two have one."""
        screenings = self._screening_losses(trials)
        best = sorted(screenings, key=lambda family: screenings[family])
        return best if len(best) >= FINALISTS else list(self.space.families)

    def _screening_losses(self, trials: "Sequence[FrozenTrial]") -> dict[str, float]:
        """Return the loss of each family whose screening has a result."""
        screenings = (
            trial for trial in trials if has_result(trial) and self.is_screening(trial.number, trial.params, trials)
        )
        return {trial.params["family"]: lowest_loss(trial) for trial in screenings}

    def _whole(self, trials: "Sequence[FrozenTrial]") -> "dict[str, FrozenTrial]":
        """Return each family's first full training run at one of the space's first points."""
        found: dict[str, FrozenTrial] = {}
        for trial in trials:
            # A trial that another process has just begun has no parameters yet.
            if trial.params in self._own and not self.is_screening(trial.number, trial.params, trials):
                found.setdefault(trial.params["family"], trial)
        return found

    @cached_property
    def _own(self) -> list[Parameters]:
        """Points to try first, of all families."""
        return self.space.defaults()

    def _has_begun(self, point: Parameters, tried: Sequence[Parameters]) -> bool:
        """Return True if the full training run of a point has begun; a screening does not count."""
        return tried.count(point) > self.screenings.count(point)

    def _is_affordable(self, trials: "Sequence[FrozenTrial]", left: BudgetLeft) -> bool:
        """Return True if another full training run, at the highest cost so far, fits into `FAIR_SHARE`."""
        whole = list(self._whole(trials).values())
        shares = [
            (
                sum(_used(trial, what) for trial in trials),
                max((_used(trial, what) for trial in whole), default=0.0),
                rest,
            )
            for what, rest in (("seconds", left.trial_seconds), ("joules", left.joules))
            if rest is not None
        ]
        if left.trials is not None:  # screenings are short and do not count as trials
            shares.append((len(whole), 1, len(trials) - len(whole) + left.trials))
        return bool(shares) and all(used + one <= FAIR_SHARE * (used + rest) for used, one, rest in shares)


def _used(trial: "FrozenTrial", what: str) -> float:
    return trial.user_attrs.get(what) or 0.0
