"""How fast a job really is: what was foretold gives way to what was measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from shunter.extensions.fleet.job import Iterations, Work

LEAST_SECONDS, LEAST_SHARE = 2.0, 0.02  # of a measurement: the first steps are not like the others


@dataclass(slots=True)
class Pace:
    """Measures one job on one type at a time.

    Attributes:
        foretold: What the job was thought to be.
        measured: Seconds of a whole job by accelerator type, as far as it has run there.
    """

    foretold: Work
    measured: dict[str, float] = field(default_factory=dict)
    _since: tuple[float, float] | None = None

    def begin(self) -> None:
        """It is started anew, perhaps elsewhere."""
        self._since = None

    def observe(self, accelerator: str, now: float, share: float) -> bool:
        """Take in that a share of the job is done; returns whether that has changed its pace."""
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
        """The job as it is known now."""
        return corrected(self.foretold, self.measured) if isinstance(self.foretold, Iterations) else self.foretold

    def done(self, share: float) -> float:
        """What a share of the job is in the units of its work."""
        return share * self.foretold.count if isinstance(self.foretold, Iterations) else share


def corrected(work: Iterations, measured: Mapping[str, float]) -> Iterations:
    """Iterations at the pace that was measured; types not yet tried are off by as much as those that were, on average.

    Args:
        work: What was foretold, communication left out where one machine does it all.
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
