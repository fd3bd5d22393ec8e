"""Intervals: percentiles of samples, and the confidence interval of a share."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np


def deciles(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Return the 10th, 50th and 90th percentile."""
    p10, median, p90 = np.percentile(values, [10, 50, 90]).tolist()
    return p10, median, p90


def central_interval(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Return the percentiles that enclose the middle share `confidence` of the values."""
    tail = round((1 - confidence) / 2, 12)  # 0.025, not 0.02500000000000002
    low, high = np.quantile(values, [tail, 1 - tail]).tolist()
    return low, high


def wilson_interval(share: float, rows: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of a share seen among `rows` rows, by Wilson's score (JASA 22, 1927).

    It equals `scipy.stats.binomtest(...).proportion_ci(method="wilson")`, but takes the share of weighted rows too, and
    loads no scipy.stats.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    # Of none or all of the rows a bound is the share itself, which rounding may miss.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))
