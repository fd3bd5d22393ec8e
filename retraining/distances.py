"""Distances of a day's numbers, list lengths and labels from those of the previous days, and the limits of drift.

A distance counts as drift if it exceeds three bounds. The first is a smallest effect, since any difference between
large logs is significant. The second is the distance by chance at the day's number of rows, corrected for the number
of comparisons of the day (Bonferroni). The third is a multiple of the distances between the previous days.
"""

from collections.abc import Callable, Sequence
from math import inf, log, sqrt
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from shunter.frozen import Frozen
from shunter.retraining.figures import DayFigures, FieldFigures

Kind = TypeVar("Kind")

# Chosen on rows 90,000 to 110,000 of Criteo-Kaggle and on MovieLens-100K, in consecutive windows. Confirmed on 60,000
# rows of Open Bandit, Frappe and the first 10,000 rows of Criteo-Kaggle: `python -m benchmarks.day_drift`.
LEAST_DISTANCE = 0.2  # smallest Kolmogorov-Smirnov distance (0 to 1) that counts as drift
MOST_DISTANCE = 0.9  # from this distance on, nearly disjoint values count as drift in any case
LEAST_LOG_ODDS = log(1.25)  # smallest difference of base rates, in log odds, that counts as drift
MOST_USUAL = 2.0  # limit as a multiple of the largest distance of a previous day from the other previous days
FALSE_ALARM_SHARE = 0.05  # share of the days without drift on which chance causes a false alarm


class Drift(Frozen):
    """Distance of a day from the previous days that exceeds its limit.

    Attributes:
        distance: Distance of the day.
        limit: Limit of the distance.
    """

    distance: float
    limit: float


def value_drift(field: FieldFigures, others: Sequence[FieldFigures], comparisons: int) -> Drift | None:
    """Return the Kolmogorov-Smirnov distance of a field's quantiles if it counts as drift; None otherwise.

    Args:
        field: Statistics of the field on the day.
        others: Statistics of the field on the previous days; days without quantiles are ignored.
        comparisons: Number of comparisons of the day.
    """
    others = [other for other in others if other.sampled]
    if not field.sampled or not others:
        return None
    rows = sum(other.sampled for other in others)
    chance = sqrt(-log(FALSE_ALARM_SHARE / comparisons / 2) / 2 * (1 / field.sampled + 1 / rows))
    return _drift(field, others, _distance, max(LEAST_DISTANCE, chance), MOST_DISTANCE)


def label_drift(day: DayFigures, others: Sequence[DayFigures], comparisons: int) -> Drift | None:
    """Return the difference of the base rates' log odds if it counts as drift; see `value_drift`."""
    chance = NormalDist().inv_cdf(1 - FALSE_ALARM_SHARE / comparisons / 2) * sqrt(
        sum(1 / (count + 0.5) for days in ([day], others) for count in _label_counts(days))
    )
    return _drift(day, others, _odds_distance, max(LEAST_LOG_ODDS, chance))


def exceeds_chance(day: DayFigures, usual: float) -> bool:
    """Return True if a day's base rate differs significantly from the usual base rate."""
    deviation = sqrt(max(day.rows * usual * (1 - usual), 1))
    return abs(day.positives - day.rows * usual) > NormalDist().inv_cdf(1 - FALSE_ALARM_SHARE / 20) * deviation


def _drift(
    day: Kind,
    others: Sequence[Kind],
    distance: Callable[[Kind, Sequence[Kind]], float],
    limit: float,
    most: float = inf,
) -> Drift | None:
    found = distance(day, others)
    if found <= limit:
        return None
    if len(others) > 1:
        usual = max(distance(one, [other for other in others if other is not one]) for one in others)
        limit = max(limit, min(MOST_USUAL * usual, most))
    return Drift(distance=found, limit=limit) if found > limit else None


def _distance(field: FieldFigures, others: Sequence[FieldFigures]) -> float:
    """Return the largest difference between the distribution functions of a field on a day and on other days."""
    values = np.unique(np.concatenate([one.quantiles for one in (field, *others)]))
    shares = np.average([_shares_up_to(other, values) for other in others], axis=0, weights=[o.sampled for o in others])
    return float(np.abs(_shares_up_to(field, values) - shares).max())


def _shares_up_to(field: FieldFigures, values: NDArray[np.float64]) -> NDArray[np.float64]:
    quantiles = np.array(field.quantiles)
    below = np.searchsorted(quantiles, values, side="right") - 1
    return np.maximum(below, 0) / (len(quantiles) - 1)


def _odds_distance(day: DayFigures, others: Sequence[DayFigures]) -> float:
    (positives, negatives), (before, negatives_before) = _label_counts([day]), _label_counts(others)
    return abs(log((positives + 0.5) / (negatives + 0.5)) - log((before + 0.5) / (negatives_before + 0.5)))


def _label_counts(days: Sequence[DayFigures]) -> tuple[int, int]:
    """Return the number of positive and of negative labels of some days."""
    positives = sum(day.positives for day in days)
    return positives, sum(day.rows for day in days) - positives
