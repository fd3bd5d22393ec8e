"""Successive halving over families: a brief look at each, whole trainings where there is time, then the best two.

With several families their first points alone would use up a short search. So each family's default is trained on equal
and few samples first (Jamieson and Talwalkar, AISTATS 2016, with families for arms). A look shows who learns fast, not
who comes farthest: so the first points of the families are trained to the end in the order of the looks, those of the
best two always and the others as long as a share of the budget pays for them. On large logs that first point is the
one that is held back by all; where it comes less far than the look at the default did, the data do not suit it, and the
defaults are the first points of the families that have not begun. By the best that a family came to, two go on: their
other points to the end, and then whatever the sampler draws of them.
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
LEAST_SAMPLES = 100_000  # of a look: of fewer, chance tells more than the family does
FEWEST_LEFT = FINALISTS  # trials that must be left after the looks: whole trainings of the best two
FAIR_SHARE = 0.25  # of the budget, up to which more than two families are trained to the end


@dataclass(frozen=True)
class FamilyRace:
    """Which family is looked at and trained next, and which two go on; all that it knows is in the study's trials.

    Attributes:
        space: Space of several families.
        passes: Passes over the training part that a look takes.
    """

    space: SearchSpace
    passes: float

    @classmethod
    def of(cls, space: SearchSpace, rows: int, schedule: Schedule, trials: int | None) -> "FamilyRace | None":
        """The race of a search; None where it would save nothing.

        Args:
            space: Space that is searched.
            rows: Rows of the training part.
            schedule: Longest training, and where it is validated within the first pass.
            trials: Budget in trials; None sets none.
        """
        if len(space.families) <= FINALISTS:
            return None
        wanted = LEAST_SAMPLES / max(1, rows)
        passes = min((share for share in schedule.checks if share >= wanted), default=math.ceil(wanted))
        is_short = trials is not None and trials < len(space.families) + FEWEST_LEFT
        return None if is_short or passes >= schedule.max_epochs else cls(space, passes)

    @cached_property
    def looks(self) -> list[Parameters]:
        """The point of each family that is looked at."""
        return [self.space.default(family) for family in self.space.families]

    def is_look(self, number: int, parameters: Parameters, trials: "Sequence[FrozenTrial]") -> bool:
        """Whether a trial is one: the first at the default of its family.

        Args:
            number: Number of the trial.
            parameters: Its point.
            trials: All that have begun.
        """
        return parameters in self.looks and not any(
            trial.params == parameters for trial in trials if trial.number < number
        )

    def is_final(self, number: int, parameters: Parameters, trials: "Sequence[FrozenTrial]") -> bool:
        """Whether a trial is one of those that are trained to their end in any case."""
        own = [*self._firsts(trials).values(), *self._seconds(trials)]
        return parameters in own and not self.is_look(number, parameters, trials)

    def next(self, trials: "Sequence[FrozenTrial]", left: BudgetLeft) -> Parameters | None:
        """The next look, or the next point that is trained to its end; None when all of them have begun.

        Args:
            trials: All that have begun, in their order.
            left: What the search may still use.
        """
        tried = [trial.params for trial in trials]
        for point in self.looks:
            if point not in tried:
                return point
        firsts = self._firsts(trials)
        for place, family in enumerate(self._by_looks(trials)):
            if self._has_begun(firsts[family], tried):
                continue
            if place >= FINALISTS and not self._is_affordable(trials, left):
                break
            return firsts[family]
        return next((point for point in self._seconds(trials) if not self._has_begun(point, tried)), None)

    def finalists(self, trials: "Sequence[FrozenTrial]") -> list[str]:
        """The two families that came farthest, the better one first; all of them before two have come to anything.

        Counted is what their first points came to in whole trainings, or their looks where these came farther, and
        before there are two such trainings, the looks alone.
        """
        looks = self._look_losses(trials)
        reached = {
            family: min(lowest_loss(trial), looks.get(family, math.inf))
            for family, trial in self._whole(trials).items()
            if has_result(trial)
        }
        best = sorted(reached, key=lambda family: reached[family])
        return (best if len(best) >= FINALISTS else self._by_looks(trials))[:FINALISTS]

    def _firsts(self, trials: "Sequence[FrozenTrial]") -> dict[str, Parameters]:
        """The point of each family that is trained to the end before any other of its own."""
        begun = {family: trial.params for family, trial in self._whole(trials).items()}
        if self._is_out(trials):
            others = {family: self.space.default(family) for family in self.space.families}
        else:
            others = {family: self.space.points(family)[0] for family in self.space.families}
        return {**others, **begun}

    def _seconds(self, trials: "Sequence[FrozenTrial]") -> list[Parameters]:
        """The other points of the space's own, of the families that go on."""
        firsts = self._firsts(trials)
        points = ((family, point) for family in self.finalists(trials) for point in self.space.points(family))
        return [point for family, point in points if point != firsts[family]]

    def _is_out(self, trials: "Sequence[FrozenTrial]") -> bool:
        """Whether a point that is not the default came less far in a whole training than its family's look did."""
        looks = self._look_losses(trials)
        return any(
            lowest_loss(trial) > looks.get(family, math.inf)
            for family, trial in self._whole(trials).items()
            if has_result(trial) and trial.params not in self.looks
        )

    def _by_looks(self, trials: "Sequence[FrozenTrial]") -> list[str]:
        """Families whose look came to something, the best first; all of them before there are two."""
        looks = self._look_losses(trials)
        best = sorted(looks, key=lambda family: looks[family])
        return best if len(best) >= FINALISTS else list(self.space.families)

    def _look_losses(self, trials: "Sequence[FrozenTrial]") -> dict[str, float]:
        """What the looks came to that came to anything."""
        looks = (trial for trial in trials if has_result(trial) and self.is_look(trial.number, trial.params, trials))
        return {trial.params["family"]: lowest_loss(trial) for trial in looks}

    def _whole(self, trials: "Sequence[FrozenTrial]") -> "dict[str, FrozenTrial]":
        """Trainings of the space's own points to the end, of each family the first such."""
        found: dict[str, FrozenTrial] = {}
        for trial in trials:
            # A trial that another process has just begun has no parameters yet.
            if trial.params in self._own and not self.is_look(trial.number, trial.params, trials):
                found.setdefault(trial.params["family"], trial)
        return found

    @cached_property
    def _own(self) -> list[Parameters]:
        """The points that the space begins each family with."""
        return self.space.defaults()

    def _has_begun(self, point: Parameters, tried: Sequence[Parameters]) -> bool:
        """Whether a point is trained to its end already; a default has begun once before, as a look."""
        return tried.count(point) > self.looks.count(point)

    def _is_affordable(self, trials: "Sequence[FrozenTrial]", left: BudgetLeft) -> bool:
        """Whether one more whole training, as dear as the dearest so far, keeps within the share of the budget."""
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
        if left.trials is not None:  # looks are short, and count for nothing here
            shares.append((len(whole), 1, len(trials) - len(whole) + left.trials))
        return bool(shares) and all(used + one <= FAIR_SHARE * (used + rest) for used, one, rest in shares)


def _used(trial: "FrozenTrial", what: str) -> float:
    return trial.user_attrs.get(what) or 0.0
