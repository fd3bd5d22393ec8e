"""Delay timers of Dally: how long a job waits for a tighter placement, learned from past waiting times."""

from collections import defaultdict, deque
from math import inf
from statistics import fmean, pstdev
from typing import NamedTuple, Protocol

from shunter.extensions.fleet.cluster import MACHINE, RACK

HOUR = 3600.0
WINDOW_SECONDS, WINDOW_WAITS = 24 * HOUR, 50
FEWEST_WAITS = 3  # below this, the defaults apply


class Timers(NamedTuple):
    """Waiting times of a job before it accepts looser placements.

    Attributes:
        machine_seconds: Time during which the job accepts only placements within one machine.
        rack_seconds: Time during which the job accepts only placements within one rack; later the job accepts any
            placement.
    """

    machine_seconds: float
    rack_seconds: float


class Tuner(Protocol):
    """Interface of tuners, which set the timers of a job and record the waiting times of jobs."""

    def timers(self, accelerators: int, now: float) -> Timers:
        """Return the timers of a job with this number of accelerators."""
        ...

    def record(self, accelerators: int, level: int, waited_seconds: float, now: float) -> None:
        """Record how long a job has waited since its first offer, and the level of its placement."""
        ...


class FixedTimers:
    """Constant timers: zero for jobs that never wait, infinite for jobs that insist."""

    def __init__(self, timers: Timers) -> None:
        assert 0 <= timers.machine_seconds <= timers.rack_seconds, f"timers {timers} go backwards"
        self._timers = timers

    def timers(self, accelerators: int, now: float) -> Timers:
        """Return the timers of a job with this number of accelerators."""
        return self._timers

    def record(self, accelerators: int, level: int, waited_seconds: float, now: float) -> None:
        """Record how long a job has waited since its first offer, and the level of its placement."""


class AutoTuner:
    """Timers from recent waiting times: mean plus two standard deviations, by number of accelerators.

    Numbers of accelerators with the same next power of two are grouped. The waits of the last 24 hours count, at most
    50; with fewer than three the defaults apply.

    Args:
        defaults: Timers until there are enough waits.
    """

    def __init__(self, defaults: Timers = Timers(HOUR, 2 * HOUR)) -> None:  # noqa: B008 - frozen
        self._defaults = defaults
        self._waits: dict[tuple[int, int], deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=WINDOW_WAITS))

    def timers(self, accelerators: int, now: float) -> Timers:
        """Return the timers of a job with this number of accelerators."""
        machine = self._timer(accelerators, MACHINE, self._defaults.machine_seconds, now)
        rack = self._timer(accelerators, RACK, self._defaults.rack_seconds, now)
        return Timers(machine, max(machine, rack))

    def record(self, accelerators: int, level: int, waited_seconds: float, now: float) -> None:
        """Record how long a job has waited since its first offer, and the level of its placement."""
        self._waits[_bucket(accelerators), level].append((now, waited_seconds))

    def _timer(self, accelerators: int, level: int, default: float, now: float) -> float:
        waits = [wait for at, wait in self._waits[_bucket(accelerators), level] if now - at <= WINDOW_SECONDS]
        if len(waits) < FEWEST_WAITS:
            return default
        return min(fmean(waits) + 2 * pstdev(waits), 24 * HOUR)


NEVER_WAIT = Timers(0.0, 0.0)
WAIT_FOR_EVER = Timers(inf, inf)


def _bucket(accelerators: int) -> int:
    """Return the smallest power of two that is not below the number of accelerators."""
    return 1 << (accelerators - 1).bit_length()
