"""Joules over time: kept within bounds while they are collected, turned into watts, and merged across streams."""

from bisect import bisect_right
from collections.abc import Sequence

from shunter.hardware.types import PowerSample

# Enough for a curve on a screen, and few enough to travel with the reading; half are left when it is thinned out.
MAX_POINTS = 240


class JouleSeries:
    """Joules since the start at growing times; thinned out to every second point when it becomes long.

    Thinning loses detail, never energy: a point says what was used until then.
    """

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._every = 1
        self._skipped = 0
        self.seconds: list[float] = [0.0]
        self.joules: list[float] = [0.0]

    def add(self, seconds: float, joules: float) -> None:
        """Add a point; one that is not later than the last is left out."""
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
            kept = [0, *range(1 + len(self.seconds) % 2, len(self.seconds), 2)]  # the first and the last among them
            self.seconds, self.joules = [self.seconds[i] for i in kept], [self.joules[i] for i in kept]

    def finish(self, seconds: float, joules: float) -> None:
        """Add the last point, also where the thinning would leave it out."""
        self._skipped = self._every
        self.add(seconds, joules)

    def later(self, seconds: float) -> "JouleSeries":
        """The same, begun so many seconds later; itself where that is not later."""
        if seconds <= 0:
            return self
        shifted = JouleSeries(self._max_points)
        shifted.seconds, shifted.joules = [0.0], [0.0]
        shifted.seconds += [seconds + moment for moment in self.seconds]
        shifted.joules += self.joules
        return shifted

    def at(self, seconds: float) -> float:
        """Joules until a moment, on the line between the two points around it; level before and after them."""
        right = bisect_right(self.seconds, seconds)
        if right == len(self.seconds):
            return self.joules[-1]
        if right == 0:
            return self.joules[0]
        left_seconds, right_seconds = self.seconds[right - 1], self.seconds[right]
        share = (seconds - left_seconds) / (right_seconds - left_seconds)
        return self.joules[right - 1] + share * (self.joules[right] - self.joules[right - 1])


def add_up(series: Sequence[JouleSeries]) -> JouleSeries:
    """Sum of several series at every moment at which any of them has a point."""
    total = JouleSeries(max_points=sum(len(part.seconds) for part in series) + 1)
    for seconds in sorted({moment for part in series for moment in part.seconds[1:]}):
        total.add(seconds, sum(part.at(seconds) for part in series))
    return total


def watts_over_time(series: JouleSeries, shortest_seconds: float = 1.0) -> tuple[PowerSample, ...]:
    """Mean watts between points that are at least `shortest_seconds` apart, the last stretch perhaps shorter.

    The watts times their stretches add up to the joules of the series, but for the rounding to three digits.
    """
    samples = []
    since_seconds = since_joules = 0.0
    last = len(series.seconds) - 1
    for number, (seconds, joules) in enumerate(zip(series.seconds, series.joules, strict=True)):
        if number and (seconds - since_seconds >= shortest_seconds or number == last):
            watts = (joules - since_joules) / (seconds - since_seconds)
            samples.append(PowerSample(seconds=round(seconds, 3), watts=round(watts, 3)))
            since_seconds, since_joules = seconds, joules
    return tuple(samples)
