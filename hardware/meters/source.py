"""Base class of energy sources, and the integral of power samples.

A source counts joules from its own origin; a meter takes differences. No source invents a value: a source that cannot
be read raises `HardwareError`, and the meter uses the next source and reports the reason. Every source states its
uncertainty and the cause.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple

# Assumed error of power sensors of boards and packages: NVIDIA states +-5 % for the readings of its management library
# (NVML API reference, nvmlDeviceGetPowerUsage); no smaller figure is published for other sensors.
SENSOR_SHARE = 0.05

# Power samples further apart than this many intervals, and than a second, leave a gap with unknown power.
GAP_INTERVALS = 5
SHORTEST_GAP_SECONDS = 1.0

Method = Literal["measured", "estimated"]


class Uncertainty(NamedTuple):
    """Uncertainty of an energy reading.

    Attributes:
        joules: Error to either side.
        description: Cause of the error as text.
    """

    joules: float
    description: str


class EnergySource(ABC):
    """Energy source: one way to count the joules of one component.

    A meter reads the source once at the start of a window, then every `interval_seconds` from a separate thread, and
    for each request of the window's joules. Two threads never read it at the same time.

    Attributes:
        method: Whether the joules come from a counter or sensor, or from a model.
        description: Name of the counter or the model as text.
        interval_seconds: Requested reading interval.
        needs_sampling: Whether the source must be read at this interval to count correctly, even while unused.
    """

    method: Method
    description: str
    interval_seconds: float = 0.5
    needs_sampling: bool = False

    @abstractmethod
    def joules(self) -> float:
        """Return the joules since the source's own origin.

        Raises:
            HardwareError: the source cannot be read.
        """

    def idle_joules(self, joules: float, seconds: float) -> float | None:
        """Return how many of `joules`, counted in `seconds`, are idle energy; None if unknown."""
        return None

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty | None:
        """Return the uncertainty of `joules`, counted in `seconds`; None if unknown."""
        return None


class PowerIntegral(EnergySource):
    """Energy source that integrates samples of a power sensor by the trapezoidal rule.

    The error has three parts: the sensor's error, the integration error (the difference to the integral of every second
    sample), and the gaps, in which power may have had any value between its extremes.

    Args:
        read_watts: Reader of the sensor; raises HardwareError if the sensor does not answer.
        description: Name of the sensor as text.
        interval_seconds: Time between two samples.
        clock: Clock in seconds; tests pass their own.
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
        """Take a sample, add the trapezoid since the previous sample, and return the sum."""
        point = self._clock(), self._read_watts()
        self._lowest, self._highest = min(self._lowest, point[1]), max(self._highest, point[1])
        if self._last is not None and point[0] < self._last[0]:
            self._gaps += 1  # The clock ran backwards: the power in between is unknown.
            self._coarse_last, self._coarse_joules = None, self._joules
        elif self._last is not None:
            apart = point[0] - self._last[0]
            self._joules += _trapezoid(self._last, point)
            self._covered_seconds += apart
            if apart > max(SHORTEST_GAP_SECONDS, GAP_INTERVALS * self.interval_seconds):
                self._gaps += 1
                self._gap_seconds += apart
        if self._samples % 2 == 0:
            if self._coarse_last is not None:
                self._coarse_joules += _trapezoid(self._coarse_last, point)
                self._error_joules = abs(self._joules - self._coarse_joules)
            self._coarse_last = point
        self._last = point
        self._samples += 1
        mean = f"{self._covered_seconds / (self._samples - 1):.2g} s apart" if self._samples > 1 else "alone"
        gaps = f", with {self._gaps} gap(s) of {self._gap_seconds:.1f} s in all" if self._gaps else ""
        self.description = f"{self._sensor}, samples {mean} joined by trapezoids{gaps}"
        return self._joules

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        """Return the sum of sensor, integration and gap errors; with two samples, the error equals the joules."""
        integration = self._error_joules if self._samples > 2 else joules
        gaps = self._gap_seconds * (self._highest - self._lowest) / 2
        description = f"{SENSOR_SHARE:.0%} of the sensor, and the difference to the integral of every second sample" + (
            ", and half the range of power during the gaps" if gaps else ""
        )
        return Uncertainty(SENSOR_SHARE * joules + integration + gaps, description)


def _trapezoid(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Return the joules between two pairs of seconds and watts."""
    return (second[0] - first[0]) * (first[1] + second[1]) / 2
