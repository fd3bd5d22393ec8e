"""Confidence intervals of the quality by the bootstrap, as pure functions of labels and predictions."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from shunter.engine.loop.malloc_retention import malloc_retention
from shunter.engine.metrics import binary_entropy, constant_losses, predict, row_losses
from shunter.hardware.devices.discovery import usable_cores
from shunter.models.spec import NumberLabel
from shunter.parallel import ordered_map
from shunter.statistics import central_interval, poisson_counts

Figures = tuple[float, float, float, float]

Statistic = Literal["auc", "logloss", "ne", "calibration", "rmse", "mae", "relative_loss"]
STATISTICS: tuple[Statistic, ...] = ("auc", "logloss", "ne", "calibration")
NUMBER_STATISTICS: tuple[Statistic, ...] = ("rmse", "mae", "relative_loss", "calibration")
RESAMPLES = 400
MOST_ROWS = 200_000
# Smallest share of resamples in which a metric is defined; with very few positives, many resamples have none.
LEAST_DEFINED = 0.95


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Value of a metric with its 95 % interval; NaN if not defined."""

    value: float
    low: float
    high: float


def bootstrap(
    labels: np.ndarray,
    logits: np.ndarray,
    *,
    weights: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    most_rows: int = MOST_ROWS,
    number: NumberLabel | None = None,
) -> dict[Statistic, Interval]:
    """Return 95 % percentile intervals of AUC, log loss, NE and calibration, or of metrics of numeric labels.

    A resample counts each unit a Poisson(1) number of times (Hanley and MacGibbon, "Creating non-parametric bootstrap
    samples using Poisson frequencies", 2006). The scores are therefore sorted only once for all resamples. A unit is a
    row, or a group of dependent rows, such as the rows of one user.

    If there are more than `most_rows` rows, a random sample of the rows is resampled, which limits time and memory. The
    interval is then scaled by the square root of the sample's share of the units, and centred on the value of all rows.
    This is subsampling (Politis, Romano and Wolf, 1999, section 2).

    Args:
        labels: 0 or 1, `[rows]`.
        logits: Predicted log odds, `[rows]`.
        weights: Weights of the rows, `[rows]`; None weighs all rows equally.
        groups: Id of the group of each row, `[rows]`; None resamples rows.
        seed: Seed of the resamples.
        resamples: Number of resamples.
        most_rows: Largest number of rows that are resampled.
        number: Description of a numeric label; None for clicks.

    Returns:
        One interval for each of `STATISTICS`, or of `NUMBER_STATISTICS`.
    """
    random = np.random.default_rng(seed)
    weights = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
    names, summed = STATISTICS, _SortedRows
    if number is not None:
        names, summed = NUMBER_STATISTICS, partial(_NumberRows, number)
    whole = summed(labels, logits, weights).statistics(np.ones(len(labels)))
    units = np.arange(len(labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
    chosen, share = _part_of_units(units, most_rows, random)
    units = np.unique(units[chosen], return_inverse=True)[1]
    part = summed(labels[chosen], logits[chosen], weights[chosen])
    centre = part.statistics(np.ones(len(units)))
    # Each thread computes whole resamples, because the sums are short: waking threads for one sum takes longer than
    # the sum.
    with malloc_retention(), threadpool_limits(1, user_api="blas"):
        counts = (poisson_counts(random, units.max() + 1) for _ in range(resamples))
        results = ordered_map(lambda counted: part.statistics(counted[units]), counts, workers=usable_cores())
        drawn = np.array(list(results))
    intervals: dict[Statistic, Interval] = {}
    for position, name in enumerate(names):
        defined = drawn[:, position][np.isfinite(drawn[:, position])]
        low = high = math.nan
        if len(defined) >= LEAST_DEFINED * resamples and math.isfinite(whole[position]):
            low, high = np.array(central_interval(defined)) - centre[position]
        intervals[name] = Interval(
            value=float(whole[position]),
            low=float(whole[position] + low * math.sqrt(share)),
            high=float(whole[position] + high * math.sqrt(share)),
        )
    return intervals


def _part_of_units(units: np.ndarray, most_rows: int, random: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return the rows of a random sample of the units, at most `most_rows`, and the sampled share of the units."""
    if len(units) <= most_rows:
        return np.arange(len(units)), 1.0
    sizes = np.bincount(units)
    order = random.permutation(len(sizes))
    kept = max(1, int(np.searchsorted(sizes[order].cumsum(), most_rows, side="right")))
    is_kept = np.zeros(len(sizes), dtype=bool)
    is_kept[order[:kept]] = True
    return np.flatnonzero(is_kept[units]), kept / len(sizes)


class _NumberRows:
    """Rows with a numeric label, stored so that the metrics of a resample are a few sums."""

    def __init__(self, number: NumberLabel, labels: np.ndarray, outputs: np.ndarray, weights: np.ndarray) -> None:
        labels = labels.astype(np.float64)
        predictions = predict(outputs, number)
        errors, constant = predictions - labels, constant_losses(labels, weights, number)
        of_rows = (errors**2, abs(errors), row_losses(labels, outputs, number), constant, predictions, labels)
        self._sums = np.stack([np.ones(len(labels)), *of_rows], axis=1) * weights[:, np.newaxis]

    def statistics(self, counts: np.ndarray) -> Figures:
        """Return `NUMBER_STATISTICS` with each row counted `counts` times, `[rows]`."""
        total, squares, distances, losses, constant, predicted, found = (counts @ self._sums).tolist()
        if not total:
            return math.nan, math.nan, math.nan, math.nan
        relative = losses / constant if constant else math.nan
        return math.sqrt(squares / total), distances / total, relative, predicted / found if found else math.nan


class _SortedRows:
    """Rows sorted by score, stored so that the metrics of a resample are a few sums."""

    def __init__(self, labels: np.ndarray, logits: np.ndarray, weights: np.ndarray) -> None:
        self._order = np.argsort(logits, kind="stable")
        labels, logits = labels[self._order].astype(np.float64), logits[self._order].astype(np.float64)
        weights = weights[self._order]
        self._weights, self._positives = weights, weights * labels
        self._losses = weights * (np.logaddexp(0.0, logits) - labels * logits)
        self._predictions = weights * np.exp(-np.logaddexp(0.0, -logits))
        self._negatives = self._weights - self._positives
        starts = np.flatnonzero(np.concatenate([[True], logits[1:] != logits[:-1]]))
        ties = np.diff(starts, append=len(logits))
        self._tie_start, self._tie_end = np.repeat(starts, ties), np.repeat(starts + ties, ties)  # for each row
        self._has_ties = len(starts) < len(logits)
        self._is_ranked = not np.isnan(logits).any()

    def statistics(self, counts: np.ndarray) -> Figures:
        """Return `STATISTICS` with each row counted `counts` times, `[rows]` in the original order of the rows."""
        counts = counts[self._order]
        total, positive = float(counts @ self._weights), float(counts @ self._positives)
        if not total:
            return math.nan, math.nan, math.nan, math.nan
        logloss = float(counts @ self._losses) / total
        entropy = binary_entropy(min(positive / total, 1.0))
        return (
            self._auc(counts, total, positive),
            logloss,
            logloss / entropy if entropy else math.nan,
            float(counts @ self._predictions) / positive if positive else math.nan,
        )

    def _auc(self, counts: np.ndarray, total: float, positive: float) -> float:
        """Return the AUC: share of (positive, negative) pairs ranked correctly; pairs of equal score count half."""
        negative = total - positive
        if not positive or negative <= 0 or not self._is_ranked:
            return math.nan
        negatives = counts * self._negatives
        up_to = negatives.cumsum()
        below = up_to - negatives / 2
        if self._has_ties:  # for each row of a tie, half of the tie's negatives are below it
            before = np.concatenate([[0.0], up_to])
            below = (before[self._tie_start] + before[self._tie_end]) / 2
        return float((counts * self._positives) @ below) / (positive * negative)
