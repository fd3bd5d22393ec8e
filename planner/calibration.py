"""How past predictions of whole jobs turned out, and what that promises of the next one.

A prediction is a figure for all the parts of a job, and all of them err: the epochs until it is good enough, the steps,
what a search stops early, compilation, power. How far they err together is not derived but looked up: the ratios of
what past jobs took to what was predicted of them. Where the next job is a draw like those, the intervals between their
order statistics hold what it takes with the stated probability, whatever the distribution (split conformal prediction;
Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005, section 4.2; Lei et al., JASA 2018).
Too few of them promise less: 19 are needed for 90 %, 9 for 80 % and 3 for 50 %. Without a record nothing is promised.
"""

import math
from collections.abc import Iterable
from typing import Self

from pydantic import Field

from shunter.frozen import Frozen

LEVELS = (0.9, 0.8, 0.5)
FEWEST = 3  # below, a single odd run would move the centre


class Ratios(Frozen):
    """Of what past jobs took to what was predicted of them."""

    logs: tuple[float, ...] = Field(default=(), description="Natural logarithms, in rising order.")

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Self:
        """From pairs of a figure as it was predicted and as it came, both above 0."""
        return cls(logs=tuple(sorted(math.log(came / predicted) for predicted, came in pairs)))

    @property
    def runs(self) -> int:
        """How many past jobs they are of."""
        return len(self.logs)

    @property
    def centre(self) -> float:
        """By what a prediction is to be multiplied, so that as many jobs take more as take less; 1 where unknown."""
        return self._factor(0.5) if self.runs >= FEWEST else 1.0

    @property
    def level(self) -> float | None:
        """The highest probability that so many jobs can promise; None where they promise nothing."""
        return next((level for level in LEVELS if self._tells((1 - level) / 2)), None)

    def interval(self) -> tuple[float, float] | None:
        """By what a prediction is to be multiplied for the ends of the interval of `level`, equally sure on each side.

        Between two order statistics it is interpolated in the logarithm, so that it holds the stated share and no more.
        """
        if self.level is None:
            return None
        outside = (1 - self.level) / 2
        return self._factor(outside), self._factor(1 - outside)

    def bound(self, confidence: float) -> float | None:
        """By what a prediction is multiplied so that it is not exceeded with that probability; None if unknown."""
        return self._factor(confidence) if self.runs >= FEWEST and self._tells(1 - confidence) else None

    def chance_below(self, factor: float) -> float | None:
        """Probability that a job takes at most so many times what is predicted of it; None where unknown.

        Beyond all past jobs it ends at the share that so many can vouch for.
        """
        if self.runs < FEWEST:
            return None
        target, last = math.log(factor), self.runs - 1
        below = sum(log <= target for log in self.logs)
        if 0 < below <= last:
            low, high = self.logs[below - 1], self.logs[below]
            return (below + (target - low) / (high - low)) / (self.runs + 1)
        return min(max(below, 1), self.runs) / (self.runs + 1)

    def _tells(self, tail: float) -> bool:
        """Whether a quantile so near to an end lies between the jobs that were seen."""
        return (self.runs + 1) * tail >= 1 - 1e-9

    def _factor(self, share: float) -> float:
        """The quantile at which such a share of draws is expected below (Hyndman and Fan, 1996, type 6)."""
        place = min(max(share * (self.runs + 1) - 1, 0.0), self.runs - 1.0)
        low = min(int(place), self.runs - 1)
        high = min(low + 1, self.runs - 1)
        return math.exp(self.logs[low] + (place - low) * (self.logs[high] - self.logs[low]))


class Calibration(Frozen):
    """What past predictions say of one job's figures."""

    known: bool = Field(default=False, description="Whether they are of jobs that had run before, as this one has.")
    seconds: Ratios = Ratios()
    joules: Ratios = Field(default=Ratios(), description="Of energies that counters measured; never of estimates.")
    memory: Ratios = Ratios()

    @property
    def energy_centre(self) -> float:
        """By what a predicted energy is to be multiplied: where no counter told, energy follows the time."""
        return self.joules.centre if self.joules.runs >= FEWEST else self.seconds.centre


UNCALIBRATED = Calibration()
