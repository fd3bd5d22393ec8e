"""Calibration of whole-job predictions by past jobs, and the intervals that follow for the next job.

A prediction covers all parts of a job, and each part has errors: the epochs until the quality is reached, the steps,
early stopping of a search, compilation, power. The joint error is not derived but taken from past jobs, as ratios of
measured to predicted totals. If the next job is drawn like the past jobs, intervals between order statistics hold with
the stated probability for any distribution (split conformal prediction; Vovk, Gammerman and Shafer, "Algorithmic
Learning in a Random World", 2005, section 4.2; Lei et al., JASA 2018). Fewer jobs support lower levels: 19 are needed
for 90 %, 9 for 80 % and 3 for 50 %. Without past jobs there is no probability.
"""

import math
from collections.abc import Iterable
from typing import Self

from pydantic import Field

from shunter.frozen import Frozen

LEVELS = (0.9, 0.8, 0.5)
FEWEST = 3  # with fewer jobs, a single odd run would move the centre
FEWEST_RUNS = 4  # of the same job, before a probability is stated for it
SLACK = 1e-4  # share by which the ends of an interval are moved outwards, so that rounded figures are within


class Ratios(Frozen):
    """Ratios of measured to predicted totals (time, energy or memory) of past jobs."""

    logs: tuple[float, ...] = Field(
        default=(), description="Natural logarithms of measured over predicted totals, ascending."
    )

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Self:
        """Create ratios from pairs of predicted and measured figures, both above 0."""
        return cls(logs=tuple(sorted(math.log(came / predicted) for predicted, came in pairs)))

    @property
    def runs(self) -> int:
        """Return the number of past jobs."""
        return len(self.logs)

    @property
    def centre(self) -> float:
        """Return the median factor that corrects a prediction; 1 with too few jobs."""
        return self._factor(0.5) if self.runs >= FEWEST else 1.0

    @property
    def level(self) -> float | None:
        """Return the highest interval probability that this number of jobs supports; None if there is none."""
        return next((level for level in LEVELS if self._tells((1 - level) / 2)), None)

    def interval(self) -> tuple[float, float] | None:
        """Return the factors on a prediction for the ends of the `level` interval, with equal tails on both sides.

        The ends are interpolated in the logarithm between two order statistics, so that the interval holds at least the
        stated probability.
        """
        if self.level is None:
            return None
        outside = (1 - self.level) / 2
        return self._factor(outside) / (1 + SLACK), self._factor(1 - outside) * (1 + SLACK)

    def bound(self, confidence: float) -> float | None:
        """Return the factor that measured/predicted does not exceed with probability `confidence`; None if unknown."""
        return self._factor(confidence) if self.runs >= FEWEST and self._tells(1 - confidence) else None

    def chance_below(self, factor: float) -> float | None:
        """Return the probability that a job takes at most `factor` times its prediction; None if unknown.

        Beyond all past jobs the probability is limited by their number.
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
        """Return True if the past jobs suffice for a quantile with probability `tail` beyond it."""
        return (self.runs + 1) * tail >= 1 - 1e-9

    def _factor(self, share: float) -> float:
        """Return the quantile of the ratios at probability `share` (Hyndman and Fan, 1996, type 6)."""
        place = min(max(share * (self.runs + 1) - 1, 0.0), self.runs - 1.0)
        low = min(int(place), self.runs - 1)
        high = min(low + 1, self.runs - 1)
        return math.exp(self.logs[low] + (place - low) * (self.logs[high] - self.logs[low]))


class Calibration(Frozen):
    """Ratios of measured to predicted totals of past jobs, which correct the predictions of one job."""

    known: bool = Field(default=False, description="Whether the past runs include runs of this same recurring job.")
    job_runs: int | None = Field(
        default=None,
        description="Number of past runs of the same job; None if not counted.",
        exclude_if=lambda runs: runs is None,
    )
    seconds: Ratios = Ratios()
    joules: Ratios = Field(
        default=Ratios(),
        description="Measured over predicted energy of past jobs; only energies measured by counters are used.",
    )
    memory: Ratios = Ratios()

    @property
    def promises(self) -> bool:
        """Return True if intervals are stated with a probability: from the fifth run of a job on."""
        return self.job_runs is None or self.job_runs >= FEWEST_RUNS

    @property
    def energy_centre(self) -> float:
        """Return the correction factor of energy; the factor of time if too few past energies were measured."""
        return self.joules.centre if self.joules.runs >= FEWEST else self.seconds.centre


UNCALIBRATED = Calibration()
