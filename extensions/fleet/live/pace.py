"""Measured speed of a job, which replaces the predicted one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from shunter.extensions.fleet.job import Iterations, Work

LEAST_SECONDS, LEAST_SHARE = 2.0, 0.02  # shortest measurement, since the first steps are slower


@dataclass(slots=True)
class Pace:
    """Speed measurement of one job, on one accelerator type at a time.

    Attributes:
        predicted: Predicted work of the job.
        measured: Seconds of the whole job by accelerator type, for types on which it has run.
    """

    predicted: Work
    measured: dict[str, float] = field(default_factory=dict)
    _since: tuple[float, float] | None = None

    def begin(self) -> None:
        """Begin a new measurement after a start."""
        self._since = None

    def observe(self, accelerator: str, now: float, share: float) -> bool:
        """Record the share of the job that is done; return True if that changes its measured speed."""
        if self._since is None:
            self._since = now, share
            return False
        seconds, gained = now - self._since[0], share - self._since[1]
        if seconds < LEAST_SECONDS or gained < LEAST_SHARE:
            return False
        self.measured[accelerator] = seconds / gained
        return True

    @property
    def work(self) -> Work:
        """Return the job's work with the measured speeds."""
        return corrected(self.predicted, self.measured) if isinstance(self.predicted, Iterations) else self.predicted

    def done(self, share: float) -> float:
        """Return the progress that a share of the job means, in the units of its work."""
        return share * self.predicted.count if isinstance(self.predicted, Iterations) else share


def corrected(work: Iterations, measured: Mapping[str, float]) -> Iterations:
    """Return iterations at the measured speed; types without a measurement are scaled by the mean correction.

    Args:
        work: Predicted work, without communication if one machine runs the job.
        measured: Seconds of the whole job by type.
    """
    paces = {
        name if name in work.compute_seconds else "": seconds / work.count
        for name, seconds in measured.items()
        if work.count
    }
    if not paces:
        return work
    off = fmean(pace / work.compute_seconds[name] for name, pace in paces.items())
    untried = {name: seconds * off for name, seconds in work.compute_seconds.items() if name not in paces}
    return replace(work, compute_seconds={**untried, **paces})
