"""Findings about the days of a nightly run, from comparisons of their statistics, each reported in one sentence.

A distance of a day's numbers, list lengths or labels from those of the previous days counts as drift if it exceeds
three bounds. The first is a smallest effect, since any difference between large logs is significant. The second is the
distance by chance at the day's number of rows, corrected for the number of comparisons of the day (Bonferroni). The
third is a multiple of the distances between the previous days.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from math import inf, log, sqrt
from statistics import NormalDist, median
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from shunter.frozen import Frozen
from shunter.retraining.figures import DayFigures, FieldFigures, new_share
from shunter.retraining.nightly_request import DriftLimits

FindingKind = Literal[
    "missing", "late", "empty", "unfinished", "duplicated", "unreadable", "not over", "undated",
    "column gone", "column new", "type changed", "base rate", "cardinality", "new values", "missing values",
    "distribution", "lengths", "labels", "promise", "degraded",
]  # fmt: skip
LEAST_ROWS = 100  # with fewer rows, shares are too uncertain


class Finding(Frozen):
    """Unusual property of the days, and its consequence."""

    day: date | None
    kind: FindingKind
    words: str
    column: str | None = None


def base_rate_finding(figures: DayFigures, usual: float, limits: DriftLimits) -> Finding | None:
    """Return a finding if the base rate of a day is unusual. Such labels are often wrong, so the day is quarantined.

    Numeric labels are unusual if they are all equal.
    """
    if figures.number:
        labels = figures.fields[figures.number].quantiles
        if labels and labels[0] < labels[-1]:
            return None
        sentence = (
            f"Every label of {figures.day} is equal: the day is excluded, not used for training or evaluation. Check "
            f"the column {figures.number}."
        )
        return Finding(day=figures.day, kind="base rate", words=sentence, column=figures.number)
    rate, ratio = figures.base_rate, limits.max_base_rate_ratio
    if figures.rows < LEAST_ROWS and 0 < figures.positives < figures.rows:
        return None
    is_usual = usual / ratio <= rate <= usual * ratio or not exceeds_chance(figures, usual)
    if 0 < figures.positives < figures.rows and is_usual:
        return None
    sentence = (
        f"Of {figures.day} {rate:.2%} of the labels are positive, of the median day {usual:.2%}: the day is excluded, "
        f"not used for training or evaluation until most days are like it or --max-base-rate-ratio allows it."
    )
    return Finding(day=figures.day, kind="base rate", words=sentence)


def drift_findings(newest: DayFigures, before: Sequence[DayFigures], limits: DriftLimits) -> list[Finding]:
    """Compare the fields of the newest day with those of the previous days; the findings exclude no day."""
    if not before or newest.rows < LEAST_ROWS:
        return []
    found: list[Finding] = []
    comparisons = 1 + sum(field.sampled > 0 for field in newest.fields.values())
    if not newest.number and (drift := label_drift(newest, before, comparisons)) is not None:
        usual = sum(day.positives for day in before) / sum(day.rows for day in before)
        sentence = (
            f"Of {newest.day} {newest.base_rate:.2%} of the labels are positive, of the days before {usual:.2%} "
            f"(difference of the log odds {drift.distance:.2f}, limit {drift.limit:.2f}): the day is used as it is."
        )
        found.append(Finding(day=newest.day, kind="labels", words=sentence))
    for name, field in newest.fields.items():
        others = [day.fields[name] for day in before if name in day.fields]
        for kind, sentence in _differences(name, field, others, newest, limits):
            found.append(Finding(day=newest.day, kind=kind, words=sentence, column=name))
        if (drift := value_drift(field, others, comparisons)) is not None:
            what = "The numbers of values" if field.keys else "The values"
            usual = median(other.quantiles[len(other.quantiles) // 2] for other in others if other.quantiles)
            sentence = (
                f"{what} of {name} on {newest.day} are distributed unlike those before: median "
                f"{field.quantiles[len(field.quantiles) // 2]:.4g}, usually {usual:.4g} (distance {drift.distance:.2f} "
                f"of at most 1, limit {drift.limit:.2f}): the day is used as it is."
            )
            kind = "lengths" if field.keys else "distribution"
            found.append(Finding(day=newest.day, kind=kind, words=sentence, column=name))
    return found


def _differences(
    name: str, field: FieldFigures, others: Sequence[FieldFigures], newest: DayFigures, limits: DriftLimits
) -> Iterator[tuple[FindingKind, str]]:
    usual_missing = median(other.missing_share for other in others)
    if abs(field.missing_share - usual_missing) > limits.max_missing_share:
        yield (
            "missing values",
            f"In {name} {field.missing_share:.0%} of the rows of {newest.day} have no value, of the median day "
            f"{usual_missing:.0%}: the day is used as it is.",
        )
    usual_distinct = median(other.distinct for other in others)
    ratio = limits.max_cardinality_ratio
    if usual_distinct and field.distinct and not usual_distinct / ratio <= field.distinct <= usual_distinct * ratio:
        yield (
            "cardinality",
            f"The field {name} has about {field.distinct:,.0f} different values on {newest.day}, on the median day "
            f"{usual_distinct:,.0f}: the day is used as it is.",
        )
    share = new_share(field, others)
    rest = [new_share(earlier, [other for other in others if other is not earlier]) for earlier in others]
    usual_new = max((earlier_share for earlier_share in rest if earlier_share is not None), default=None)
    if share is not None and usual_new is not None and share > usual_new + limits.max_new_share:
        yield (
            "new values",
            f"Of the values of {name} on {newest.day} {share:.0%} were seen on no day before, usually at most "
            f"{usual_new:.0%}: they count as unknown until they are learned.",
        )


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
