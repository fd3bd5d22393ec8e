"""Repeated measurements become figures that keep their spread."""

from collections.abc import Sequence

import numpy as np

from hardware.types import Figure


def measured_rate(amount: float, durations: Sequence[float]) -> Figure:
    """`amount` a second: the median of the repetitions, and between which rates eight of ten of them lie."""
    slow, median, fast = np.percentile(durations, [90, 50, 10])
    return Figure(value=amount / median, source="measured", low=amount / slow, high=amount / fast)


def measured_seconds(durations: Sequence[float]) -> Figure:
    """Median duration, and between which durations eight of ten of the repetitions lie."""
    low, median, high = np.percentile(durations, [10, 50, 90])
    return Figure(value=median, source="measured", low=low, high=high)
