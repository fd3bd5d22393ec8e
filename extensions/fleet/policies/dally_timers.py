"""Dally's delay timers: how long a job holds out for a tighter place, and what past waits teach of that."""

from collections import defaultdict, deque
from math import inf
from statistics import fmean, pstdev
from typing import NamedTuple, Protocol

from shunter.extensions.fleet.cluster import MACHINE, RACK

HOUR = 3600.0
WINDOW_SECONDS, WINDOW_WAITS = 24 * HOUR, 50
FEWEST_WAITS = 3  # before which the defaults hold


class Timers(NamedTuple):
    """How long a job waits for a place.

    Attributes:
        machine_seconds: Until which it takes a place within one machine alone.
        rack_seconds: Until which it takes one within a rack; later any.
    """

    machine_seconds: float
    rack_seconds: float


class Tuner(Protocol):
    """Sets the timers of a job, and hears how long others have waited."""

    def timers(self, accelerators: int, now: float) -> Timers:
        """The timers of a job of so many accelerators."""
        ...

    def record(self, accelerators: int, level: int, waited_seconds: float, now: float) -> None:
        """A job has waited so long from its first offer on, and was placed at a level."""
        ...


class FixedTimers:
    """The same timers always: none for a job that never waits, endless for one that insists."""

    def __init__(self, timers: Timers) -> None:
        assert 0 <= timers.machine_seconds <= timers.rack_seconds, f"timers {timers} go backwards"
        self._timers = timers

    def timers(self, accelerators: int, now: float) -> Timers:
        """See `Tuner.timers`."""
        return self._timers

    def record(self, accelerators: int, level: int, waited_seconds: float, now: float) -> None:
        """See `Tuner.record`."""


class AutoTuner:
    """Timers from recent waits: their mean and two deviations, by how many accelerators a job asks for.

    Jobs are alike whose numbers of accelerators have the same next power of two. Waits of the last 24 hours count, 50
    at most; with fewer than three the defaults hold.

    Args:
        defaults: Timers until enough is known.
    """

    def __init__(self, defaults: Timers = Timers(HOUR, 2 * HOUR)) -> None:  # noqa: B008 - frozen
        self._defaults = defaults
        self._waits: dict[tuple[int, int], deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=WINDOW_WAITS))

    def timers(self, accelerators: int, now: float) -> Timers:
        """See `Tuner.timers`."""
        machine = self._timer(accelerators, MACHINE, self._defaults.machine_seconds, now)
        rack = self._timer(accelerators, RACK, self._defaults.rack_seconds, now)
        return Timers(machine, max(machine, rack))

    def record(self, accelerators: int, level: int, waited_seconds: float, now: float) -> None:
        """See `Tuner.record`."""
        self._waits[_bucket(accelerators), level].append((now, waited_seconds))

    def _timer(self, accelerators: int, level: int, default: float, now: float) -> float:
        waits = [wait for at, wait in self._waits[_bucket(accelerators), level] if now - at <= WINDOW_SECONDS]
        if len(waits) < FEWEST_WAITS:
            return default
        return min(fmean(waits) + 2 * pstdev(waits), 24 * HOUR)


NEVER_WAIT = Timers(0.0, 0.0)
WAIT_FOR_EVER = Timers(inf, inf)


def _bucket(accelerators: int) -> int:
    """The next power of two."""
    return 1 << (accelerators - 1).bit_length()
