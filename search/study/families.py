"""Successive halving over families: a brief look at each, then the budget for the best two.

With several families their first points alone would use up a short search. So each family's default is trained on equal
and few samples first (Jamieson and Talwalkar, AISTATS 2016, with families for arms and two rungs). The best
two go on: their own points to the end, which nothing stops early, and then whatever the sampler draws of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config import Schedule
from search.protocol import Parameters
from search.space.settings import SearchSpace
from search.study.storage import has_result, lowest_loss

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

FINALISTS = 2
LEAST_SAMPLES = 100_000  # of a look: of fewer, chance tells more than the family does
FEWEST_LEFT = 3  # trials that must be left after the looks


@dataclass(frozen=True)
class FamilyRace:
    """Which family is looked at next, and which two go on; all that it knows is in the trials of the study.

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

    @property
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
        return not self.is_look(number, parameters, trials) and parameters in self._finals(trials)

    def next(self, trials: "Sequence[FrozenTrial]") -> Parameters | None:
        """The next look, or the next point of a family that goes on; None when all of them have begun.

        Args:
            trials: All that have begun, in their order.
        """
        tried = [trial.params for trial in trials]
        looks = self.looks
        for point in looks:
            if point not in tried:
                return point
        for point in self._finals(trials):
            if tried.count(point) <= looks.count(point):  # a default has begun once already, as a look
                return point
        return None

    def finalists(self, trials: "Sequence[FrozenTrial]") -> list[str]:
        """The two families whose looks came farthest, the better one first; all of them before there are two."""
        losses: dict[str, float] = {}
        for trial in trials:
            if self.is_look(trial.number, trial.params, trials) and has_result(trial):
                losses[trial.params["family"]] = lowest_loss(trial)
        best = sorted(losses, key=lambda family: losses[family])[:FINALISTS]
        return best if len(best) == FINALISTS else list(self.space.families)

    def _finals(self, trials: "Sequence[FrozenTrial]") -> list[Parameters]:
        """The space's own points of the families that go on: of both the first, then of both the second."""
        own = [self.space.points(family) for family in self.finalists(trials)]
        return [points[place] for place in range(max(map(len, own))) for points in own if place < len(points)]
