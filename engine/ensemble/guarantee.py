"""A quality that is promised with a confidence: distribution-free bounds on rows that have fitted and chosen nothing.

The bounds come from the bootstrap, which supposes nothing about scores and labels but that units (rows, or all rows of
one user, or of one day) are drawn independently. Of few units percentiles are too narrow, so they are taken further out
as Student's t says (the expanded percentile interval of Hesterberg, "What Teachers Should Know About the Bootstrap",
The American Statistician 69(4), 2015). That of the AUC is checked against DeLong's variance (DeLong, DeLong and
Clarke-Pearson, Biometrics 44(3), 1988), with the rows of a unit together as Obuchowski has it (Biometrics 53(2), 1997),
on the log odds of the AUC; the lower of the two counts.
"""

import math
from dataclasses import dataclass

import numpy as np

from shunter.engine.ensemble.calibration import log_losses
from shunter.statistics.bootstrap import multinomial_counts

RESAMPLES, RESAMPLES_OF_MANY, MANY_ROWS = 1_000, 300, 50_000
LEAST_UNITS = 20
LEAST_DEFINED = 0.95  # share of the resamples that must hold both classes


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What holds with a confidence, each by itself.

    Attributes:
        auc: Of the rows.
        auc_low: The AUC is at least that; nan where there are too few units, or one class.
        auc_high: It is at most that.
        bootstrap_low: The lower one by the bootstrap alone.
        delong_low: The same by DeLong's variance alone.
        ne: Of the rows.
        ne_low: The NE is at least that.
        ne_high: It is at most that.
        confidence: The confidence.
        rows: Rows that were measured on.
        units: Rows, or users, that were drawn.
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
    """Bounds of AUC and NE that hold with a confidence.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: Predicted log odds, `[rows]`.
        confidence: Between 0.5 and 1; each bound holds with it.
        groups: Id of the unit of each row, such as its user, `[rows]`; None takes each row for itself.
        seed: Seed of the resamples.
        resamples: Count of resamples; None is 1,000, or 300 of many rows.
    """
    from threadpoolctl import threadpool_limits

    resamples = resamples or (RESAMPLES if len(labels) <= MANY_ROWS else RESAMPLES_OF_MANY)
    units = np.arange(len(labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
    count, positives = int(units.max(initial=-1)) + 1, int((labels == 1).sum())
    ranked = _Ranked(labels, logits, units)
    auc, ne = (float(one[0]) for one in ranked.figures(np.ones((1, max(count, 1)))))
    quantile = _quantile(confidence, count)
    ends, delong = np.full((2, 2), math.nan), np.full(2, math.nan)
    if count >= LEAST_UNITS and 0 < positives < len(labels) and np.isfinite(logits).all():
        random = np.random.default_rng(seed)
        with threadpool_limits(1):
            drawn = np.concatenate(
                [ranked.figures(counts) for counts in multinomial_counts(random, count, resamples)], axis=1
            )
        defined = drawn[:, np.isfinite(drawn).all(0)]
        if defined.shape[1] >= LEAST_DEFINED * resamples:
            ends = np.quantile(defined, _shares(quantile), axis=1)
        error = ranked.standard_error(auc)
        delong = np.array([_moved(auc, error, sign * quantile) for sign in (-1, 1)])
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


def _quantile(confidence: float, units: int) -> float:
    """How many standard errors away a bound lies: more than those of the normal distribution, for few units."""
    from scipy.stats import t

    degrees = max(units - 1, 1)
    return float(t.ppf(confidence, degrees)) * math.sqrt((degrees + 1) / degrees)


def _shares(quantile: float) -> tuple[float, float]:
    """Shares of the resamples that lie beyond a bound below and below one above."""
    from scipy.stats import norm

    return float(norm.cdf(-quantile)), float(norm.cdf(quantile))


def _moved(auc: float, error: float, quantile: float) -> float:
    """The bound by a normal distribution of the log odds of an AUC; an AUC of 0 or 1 has no error to go by."""
    if not 0 < auc < 1:
        return math.nan
    odds = math.log(auc / (1 - auc)) + quantile * error / (auc * (1 - auc))
    return 1 / (1 + math.exp(-odds))


class _Ranked:
    """Rows in the order of their scores, so that the figures of many resamples are a few sums."""

    def __init__(self, labels: np.ndarray, logits: np.ndarray, units: np.ndarray) -> None:
        order = np.argsort(logits, kind="stable")
        logits = logits[order].astype(np.float64)
        self._labels, self._units = labels[order].astype(np.float64), units[order]
        self._starts = np.flatnonzero(np.append(True, logits[1:] != logits[:-1]))[: len(logits)]
        self._losses = log_losses(self._labels, logits)

    def figures(self, counts: np.ndarray) -> np.ndarray:
        """AUC and NE of resamples, `[2, resamples]`, from how often each has each unit, `[resamples, units]`."""
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
        """Of the AUC, from what each row adds to it, the rows of a unit together."""
        is_positive = self._labels == 1
        positive, negative = is_positive.sum(), (~is_positive).sum()
        positives, negatives = (np.add.reduceat(one.astype(float), self._starts) for one in (is_positive, ~is_positive))
        below, above = negatives.cumsum() - negatives / 2, positive - positives.cumsum() + positives / 2
        sizes = np.diff(np.append(self._starts, len(self._labels)))
        won = np.where(is_positive, np.repeat(below, sizes) / negative, np.repeat(above, sizes) / positive)
        added = (won - auc) / np.where(is_positive, positive, negative)
        of_unit = np.bincount(self._units, added)
        return float(math.sqrt(len(of_unit) / (len(of_unit) - 1) * (of_unit @ of_unit)))
