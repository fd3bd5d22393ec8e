"""Distribution-free confidence bounds on a model's quality, from rows that no fit and no selection used.

The bounds come from the bootstrap. It assumes nothing about scores and labels except that units (rows, or all rows of a
user or of a day) are drawn independently. With few units percentiles are too narrow, so they are widened by Student's t
(the expanded percentile interval of Hesterberg, "What Teachers Should Know About the Bootstrap", The American
Statistician 69(4), 2015).

The bound of the AUC is checked against DeLong's variance (DeLong, DeLong and Clarke-Pearson, Biometrics 44(3), 1988) on
the log odds of the AUC. The rows of a unit are taken together as in Obuchowski (Biometrics 53(2), 1997). The wider of
the two bounds is used.
"""

import math
from dataclasses import dataclass

import numpy as np

from shunter.engine.ensemble.calibration import log_losses
from shunter.statistics import multinomial_counts

RESAMPLES, RESAMPLES_OF_MANY, MANY_ROWS = 1_000, 300, 50_000
LEAST_UNITS = 20
LEAST_DEFINED = 0.95  # share of the resamples that must hold both classes


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds of AUC and NE; each single bound holds with the stated confidence.

    Attributes:
        auc: AUC of the rows.
        auc_low: Lower bound of the AUC; nan with too few units, or one label only.
        auc_high: Upper bound of the AUC.
        bootstrap_low: Lower bound of the AUC by the bootstrap alone.
        delong_low: Lower bound of the AUC by DeLong's variance alone.
        ne: NE of the rows.
        ne_low: Lower bound of the NE.
        ne_high: Upper bound of the NE.
        confidence: Confidence of each bound, between 0.5 and 1.
        rows: Number of rows.
        units: Number of resampled units: rows, or users.
    """

    auc: float
    auc_low: float
    auc_high: float
    bootstrap_low: float
    delong_low: float
    ne: float
    ne_low: float
    ne_high: float
    confidence: float
    rows: int
    units: int


def bounds(
    labels: np.ndarray,
    logits: np.ndarray,
    *,
    confidence: float,
    groups: np.ndarray | None = None,
    seed: int = 0,
    resamples: int | None = None,
) -> Bounds:
    """Return confidence bounds of AUC and NE.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: Predicted log odds, `[rows]`.
        confidence: Confidence of each bound, between 0.5 and 1.
        groups: Id of the unit of each row, such as its user, `[rows]`; None makes each row a unit.
        seed: Seed of the resamples.
        resamples: Number of resamples; None is 1,000, or 300 with more than 50,000 rows.
    """
    from scipy.stats import norm, t
    from threadpoolctl import threadpool_limits

    resamples = resamples or (RESAMPLES if len(labels) <= MANY_ROWS else RESAMPLES_OF_MANY)
    units = np.arange(len(labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
    count, positives = int(units.max(initial=-1)) + 1, int((labels == 1).sum())
    ranked = _Ranked(labels, logits, units)
    auc, ne = (float(one[0]) for one in ranked.figures(np.ones((1, max(count, 1)))))
    # Distance of a bound in standard errors, larger than the normal quantile for few units.
    degrees = max(count - 1, 1)
    quantile = float(t.ppf(confidence, degrees)) * math.sqrt((degrees + 1) / degrees)
    ends, delong = np.full((2, 2), math.nan), np.full(2, math.nan)
    if count >= LEAST_UNITS and 0 < positives < len(labels) and np.isfinite(logits).all():
        random = np.random.default_rng(seed)
        with threadpool_limits(1):
            drawn = np.concatenate(
                [ranked.figures(counts) for counts in multinomial_counts(random, count, resamples)], axis=1
            )
        defined = drawn[:, np.isfinite(drawn).all(0)]
        if defined.shape[1] >= LEAST_DEFINED * resamples:
            ends = np.quantile(defined, norm.cdf([-quantile, quantile]), axis=1)
        if 0 < auc < 1:  # by a normal distribution of the log odds of the AUC
            spread = quantile * ranked.standard_error(auc) / (auc * (1 - auc))
            odds = math.log(auc / (1 - auc))
            delong = np.array([1 / (1 + math.exp(-odds - moved)) for moved in (-spread, spread)])
    (low, ne_low), (high, ne_high) = ends.tolist()
    return Bounds(
        auc=auc,
        auc_low=float(np.minimum(low, delong[0])),
        auc_high=float(np.maximum(high, delong[1])),
        bootstrap_low=low,
        delong_low=float(delong[0]),
        ne=ne,
        ne_low=ne_low,
        ne_high=ne_high,
        confidence=confidence,
        rows=len(labels),
        units=count,
    )


class _Ranked:
    """Rows sorted by score, so that the figures of many resamples are a few sums."""

    def __init__(self, labels: np.ndarray, logits: np.ndarray, units: np.ndarray) -> None:
        order = np.argsort(logits, kind="stable")
        logits = logits[order].astype(np.float64)
        self._labels, self._units = labels[order].astype(np.float64), units[order]
        self._starts = np.flatnonzero(np.append(True, logits[1:] != logits[:-1]))[: len(logits)]
        self._losses = log_losses(self._labels, logits)

    def figures(self, counts: np.ndarray) -> np.ndarray:
        """Return AUC and NE of resamples, `[2, resamples]`.

        Args:
            counts: Number of times that each resample contains each unit, `[resamples, units]`.
        """
        from scipy.special import xlogy

        rows = counts[:, self._units].astype(np.float64)
        positive, total = rows @ self._labels, rows.sum(1)
        positives = np.add.reduceat(rows * self._labels, self._starts, axis=1)
        negatives = np.add.reduceat(rows * (1 - self._labels), self._starts, axis=1)
        below = negatives.cumsum(1) - negatives / 2
        base = positive / total
        entropy = -(xlogy(base, base) + xlogy(1 - base, 1 - base))
        with np.errstate(divide="ignore", invalid="ignore"):
            auc = (positives * below).sum(1) / (positive * (total - positive))
            return np.stack([auc, rows @ self._losses / total / entropy])

    def standard_error(self, auc: float) -> float:
        """Return DeLong's standard error of the AUC, from the contributions of rows summed over each unit."""
        is_positive = self._labels == 1
        positive, negative = is_positive.sum(), (~is_positive).sum()
        positives, negatives = (np.add.reduceat(one.astype(float), self._starts) for one in (is_positive, ~is_positive))
        below, above = negatives.cumsum() - negatives / 2, positive - positives.cumsum() + positives / 2
        sizes = np.diff(np.append(self._starts, len(self._labels)))
        won = np.where(is_positive, np.repeat(below, sizes) / negative, np.repeat(above, sizes) / positive)
        added = (won - auc) / np.where(is_positive, positive, negative)
        of_unit = np.bincount(self._units, added)
        return float(math.sqrt(len(of_unit) / (len(of_unit) - 1) * (of_unit @ of_unit)))
