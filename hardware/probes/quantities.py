"""Repeated measurements become quantities that keep their spread."""

from collections.abc import Sequence

import numpy as np

from shunter.hardware.types import Quantity


def measured_rate(amount: float, durations: Sequence[float]) -> Quantity:
    """`amount` a second: the median of the repetitions, and between which rates eight of ten of them lie."""
    slow, median, fast = np.percentile(durations, [90, 50, 10])
    return Quantity(value=amount / median, source="measured", low=amount / slow, high=amount / fast)


def measured_seconds(durations: Sequence[float]) -> Quantity:
    """Median duration, and between which durations eight of ten of the repetitions lie."""
    low, median, high = np.percentile(durations, [10, 50, 90])
    return Quantity(value=median, source="measured", low=low, high=high)
