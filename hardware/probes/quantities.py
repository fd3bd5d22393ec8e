"""Conversion of repeated measurements to quantities with a spread."""

from collections.abc import Sequence

from shunter.hardware.types import Quantity
from shunter.statistics.intervals import deciles


def measured_rate(amount: float, durations: Sequence[float]) -> Quantity:
    """Return `amount` per second: the median of the repetitions, and their 10th and 90th percentile."""
    fast, median, slow = deciles(durations)
    return Quantity(value=amount / median, source="measured", low=amount / slow, high=amount / fast)


def measured_seconds(durations: Sequence[float]) -> Quantity:
    """Return the median duration of the repetitions, and their 10th and 90th percentile."""
    low, median, high = deciles(durations)
    return Quantity(value=median, source="measured", low=low, high=high)
