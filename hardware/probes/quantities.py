"""Repeated measurements become quantities that keep their spread."""

from collections.abc import Sequence

from shunter.hardware.types import Quantity
from shunter.statistics.intervals import deciles


def measured_rate(amount: float, durations: Sequence[float]) -> Quantity:
    """`amount` a second: the median of the repetitions, and between which rates eight of ten of them lie."""
    fast, median, slow = deciles(durations)
    return Quantity(value=amount / median, source="measured", low=amount / slow, high=amount / fast)


def measured_seconds(durations: Sequence[float]) -> Quantity:
    """Median duration, and between which durations eight of ten of the repetitions lie."""
    low, median, high = deciles(durations)
    return Quantity(value=median, source="measured", low=low, high=high)
