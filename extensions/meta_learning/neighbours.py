"""Similarity of data sets: a distance between their meta-features."""

import math
from collections.abc import Callable, Mapping

# Transformation and unit of each meta-feature. The units are fixed instead of computed from past data sets: there are
# few of them, often similar, and a distance between two data sets should not depend on a third data set.
# Amounts are compared by their logarithm, with a unit of a factor of ten, and rates by their log odds. The units of the
# landmarks are differences that separate data sets with different best settings.
Scale = tuple[Callable[[float], float], float]


def _log(value: float) -> float:
    return math.log10(max(value, 1e-6))


def _log_of_count(value: float) -> float:
    return math.log2(1 + max(value, 0.0))


def _log_odds(value: float) -> float:
    value = min(max(value, 1e-6), 1 - 1e-6)
    return math.log(value / (1 - value))


SCALES: dict[str, Scale] = {
    "rows": (_log, 1.0),
    "base_rate": (_log_odds, 2.0),
    "dense_fields": (_log_of_count, 2.0),
    "categorical_fields": (_log_of_count, 2.0),
    "multi_valued_fields": (_log_of_count, 2.0),
    "table_rows_sum": (_log, 1.0),
    "table_rows_max": (_log, 1.0),
    "table_rows_geometric_mean": (_log, 1.0),
    "rows_per_table_row": (_log, 1.0),
    "missing_share": (float, 0.2),
    "top_percent_share": (float, 0.2),
    "entropy_share": (float, 0.2),
    "zipf_exponent": (float, 0.5),
    "unseen_share": (float, 0.2),
    "bag_length": (_log_of_count, 2.0),
    "dense_skewness": (_log_of_count, 1.0),
    "dense_commonest_share": (float, 0.2),
    "dense_correlation": (float, 0.2),
    "landmark_field_ne": (float, 0.1),
    "landmark_bayes_auc": (float, 0.1),
    "landmark_logistic_ne": (float, 0.1),
    "landmark_free_logistic_ne": (float, 0.1),
}
FARTHEST = 3.0  # upper bound for the difference of one meta-feature, in units


def distance(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the root mean square of the differences in units of `SCALES`; 0 between equal data sets.

    A meta-feature that only one data set has counts as one unit. Meta-features that both data sets lack or that are NaN
    are ignored. The distance is infinite if no meta-features can be compared.
    """
    differences, in_common = [], 0
    for name, (scaled, unit) in SCALES.items():
        known = [values[name] for values in (first, second) if math.isfinite(values.get(name, math.nan))]
        if len(known) == 2:
            in_common += 1
            differences.append(min(abs(scaled(known[0]) - scaled(known[1])) / unit, FARTHEST))
        elif known:
            differences.append(1.0)
    if not in_common:
        return math.inf
    return math.sqrt(sum(difference**2 for difference in differences) / len(differences))
