"""What every way to count joules has in common, and the integral of power samples.

A source counts joules since an origin of its own; a meter takes differences. No source returns a made-up value: one
that cannot be read raises `HardwareError`, and the meter turns to the next one and says so. Every source says how far
its joules may be off, and why.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple

# Power sensors of boards and packages are taken to be right within 5 %: NVIDIA states +-5 % for the readings of its
# management library (NVML API reference, nvmlDeviceGetPowerUsage); nobody states less for the others.
SENSOR_SHARE = 0.05

# Power samples further apart than so many intervals, and than a second, leave a gap of which nothing is known.
GAP_INTERVALS = 5
SHORTEST_GAP_SECONDS = 1.0

Method = Literal["measured", "estimated"]


class Uncertainty(NamedTuple):
    """How far a reading may be off.

    Attributes:
        joules: Error to either side.
        description: What the error follows from, in words.
    """

    joules: float
    description: str


class EnergySource(ABC):
    """One way to count the joules of one component.

    A meter reads it once when a window opens, then every `interval_seconds` from a thread of its own, and whenever the
    window's joules are asked for; never from two threads at once.

    Attributes:
        method: Whether the joules come from a counter or sensor, or from a model.
        description: Name of the counter or the model, in words.
        interval_seconds: Interval at which the source wants to be read.
        needs_sampling: Whether it counts wrong unless it is read that often, even while another one is trusted.
    """

    method: Method
    description: str
    interval_seconds: float = 0.5
    needs_sampling: bool = False

    @abstractmethod
    def joules(self) -> float:
        """Joules since the source's own origin.

        Raises:
            HardwareError: the source cannot be read.
        """

    def idle_joules(self, joules: float, seconds: float) -> float | None:
        """How many of `joules`, counted in `seconds`, flow at rest too; None where that is unknown.

        Args:
            joules: Difference of two readings.
            seconds: Time between them.
        """
        return None

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty | None:
        """How far `joules`, counted in `seconds`, may be off; None when nothing is known about it.

        Args:
            joules: Difference of two readings.
            seconds: Time between them.
        """
        return None


class PowerIntegral(EnergySource):
    """Samples of a power sensor joined by trapezoids.

    Its error has three parts: that of the sensor; that of the integration, taken as the difference to the integral of
    every second sample; and the gaps, in which the power may have been anything between its extremes.

    Args:
        read_watts: Reader of the sensor; raises HardwareError when it does not answer.
        description: Name of the sensor, in words.
        interval_seconds: Time between two samples.
        clock: Clock in seconds; tests put their own here.
    """

    method = "measured"
    needs_sampling = True

    def __init__(
        self,
        read_watts: Callable[[], float],
        description: str,
        interval_seconds: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_seconds = interval_seconds
        self._sensor = self.description = description
        self._read_watts = read_watts
        self._clock = clock
        self._joules = self._coarse_joules = self._error_joules = 0.0
        self._last: tuple[float, float] | None = None
        self._coarse_last: tuple[float, float] | None = None
        self._samples = self._gaps = 0
        self._gap_seconds = self._covered_seconds = 0.0
        self._lowest, self._highest = float("inf"), float("-inf")

    def joules(self) -> float:
        """Take a sample and add the trapezoid since the one before."""
        point = self._clock(), self._read_watts()
        self._lowest, self._highest = min(self._lowest, point[1]), max(self._highest, point[1])
        if self._last is not None and point[0] < self._last[0]:
            self._gaps += 1  # The clock ran backwards: nothing is known of the time in between.
            self._coarse_last, self._coarse_joules = None, self._joules
        elif self._last is not None:
            self._add(point)
        if self._samples % 2 == 0:
            if self._coarse_last is not None:
                self._coarse_joules += _trapezoid(self._coarse_last, point)
                self._error_joules = abs(self._joules - self._coarse_joules)
            self._coarse_last = point
        self._last = point
        self._samples += 1
        self.description = self._describe()
        return self._joules

    def _add(self, point: tuple[float, float]) -> None:
        assert self._last is not None
        seconds = point[0] - self._last[0]
        self._joules += _trapezoid(self._last, point)
        self._covered_seconds += seconds
        if seconds > max(SHORTEST_GAP_SECONDS, GAP_INTERVALS * self.interval_seconds):
            self._gaps += 1
            self._gap_seconds += seconds

    def _describe(self) -> str:
        apart = f"{self._covered_seconds / (self._samples - 1):.2g} s apart" if self._samples > 1 else "alone"
        gaps = f", with {self._gaps} gap(s) of {self._gap_seconds:.1f} s in all" if self._gaps else ""
        return f"{self._sensor}, samples {apart} joined by trapezoids{gaps}"

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        """Sensor, integration and gaps added up; two samples alone may be wrong altogether."""
        integration = self._error_joules if self._samples > 2 else joules
        gaps = self._gap_seconds * (self._highest - self._lowest) / 2
        description = f"{SENSOR_SHARE:.0%} of the sensor, and the difference to the integral of every second sample" + (
            ", and half the range of power during the gaps" if gaps else ""
        )
        return Uncertainty(SENSOR_SHARE * joules + integration + gaps, description)


def _trapezoid(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Joules between two pairs of seconds and watts."""
    return (second[0] - first[0]) * (first[1] + second[1]) / 2
