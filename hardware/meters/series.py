"""Joules over time: bounded in length while collected, convertible to watts, and summed across components."""

from bisect import bisect_right
from collections.abc import Sequence

from shunter.hardware.types import PowerSample

# Enough points for a curve on a screen, and few enough to send with a reading. Thinning keeps half of the points.
MAX_POINTS = 240


class JouleSeries:
    """Joules since the start at increasing times; thinned to every second point when it becomes too long.

    Thinning loses detail but no energy, because a point holds the joules used until then.
    """

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._every = 1
        self._skipped = 0
        self.seconds: list[float] = [0.0]
        self.joules: list[float] = [0.0]

    def add(self, seconds: float, joules: float) -> None:
        """Add a point of energy over time; ignore it if it is not later than the last point."""
        if seconds <= self.seconds[-1]:
            return
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self.seconds.append(seconds)
        self.joules.append(joules)
        if len(self.seconds) > self._max_points:
            self._every *= 2
            kept = [0, *range(1 + len(self.seconds) % 2, len(self.seconds), 2)]  # keeps the first and the last point
            self.seconds, self.joules = [self.seconds[i] for i in kept], [self.joules[i] for i in kept]

    def finish(self, seconds: float, joules: float) -> None:
        """Add the last point of the series, even if thinning would skip it."""
        self._skipped = self._every
        self.add(seconds, joules)

    def later(self, seconds: float) -> "JouleSeries":
        """Return the series shifted to later times by `seconds`; the series itself if `seconds` is not positive."""
        if seconds <= 0:
            return self
        shifted = JouleSeries(self._max_points)
        shifted.seconds, shifted.joules = [0.0], [0.0]
        shifted.seconds += [seconds + moment for moment in self.seconds]
        shifted.joules += self.joules
        return shifted

    def at(self, seconds: float) -> float:
        """Return the joules until a moment by linear interpolation; constant outside of the first and last point."""
        right = bisect_right(self.seconds, seconds)
        if right == len(self.seconds):
            return self.joules[-1]
        if right == 0:
            return self.joules[0]
        left_seconds, right_seconds = self.seconds[right - 1], self.seconds[right]
        share = (seconds - left_seconds) / (right_seconds - left_seconds)
        return self.joules[right - 1] + share * (self.joules[right] - self.joules[right - 1])


def add_up(series: Sequence[JouleSeries]) -> JouleSeries:
    """Return the sum of several series at every time at which any series has a point."""
    total = JouleSeries(max_points=sum(len(part.seconds) for part in series) + 1)
    for seconds in sorted({moment for part in series for moment in part.seconds[1:]}):
        total.add(seconds, sum(part.at(seconds) for part in series))
    return total


def watts_over_time(series: JouleSeries) -> tuple[PowerSample, ...]:
    """Return mean watts between points at least a second apart; the last interval can be shorter.

    Watts times interval lengths add up to the joules of the series, except for rounding to three decimals.
    """
    samples = []
    since_seconds = since_joules = 0.0
    last = len(series.seconds) - 1
    for number, (seconds, joules) in enumerate(zip(series.seconds, series.joules, strict=True)):
        if number and (seconds - since_seconds >= 1 or number == last):
            watts = (joules - since_joules) / (seconds - since_seconds)
            samples.append(PowerSample(seconds=round(seconds, 3), watts=round(watts, 3)))
            since_seconds, since_joules = seconds, joules
    return tuple(samples)
