"""Findings about the days of a nightly run, from comparisons of their statistics, each reported in one sentence."""

from collections.abc import Iterator, Sequence
from datetime import date
from statistics import median
from typing import Literal

from shunter.frozen import Frozen
from shunter.retraining.distances import exceeds_chance, label_drift, value_drift
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
    """Compare the fields of the newest day with those of the previous days; the findings exclude no day.

    Args:
        newest: Evaluation day.
        before: Usable days before the evaluation day.
        limits: Smallest differences that are reported.
    """
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
