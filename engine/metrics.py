"""Quality of predicted click probabilities."""

import math
from dataclasses import asdict, dataclass

import numpy as np

from shunter.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Quality over one set of rows.

    A set with one class only has no ranking and no entropy: `auc` and `ne` are nan there, and `calibration` is nan
    when there is no positive at all.

    Attributes:
        auc: area under the ROC curve; a tie between a positive and a negative counts one half.
        logloss: mean negative log likelihood, in nats.
        ne: normalised entropy, `logloss` over the entropy of the base rate; below 1 is better than always predicting
            the base rate.
        calibration: mean prediction over base rate; 1 is unbiased.
        rows: rows scored.
        base_rate: share of positives among them.
    """

    auc: float
    logloss: float
    ne: float
    calibration: float
    rows: int
    base_rate: float

    def to_dict(self) -> dict[str, float]:
        """Plain values, ready for JSON."""
        return asdict(self)


def compute_metrics(labels: np.ndarray, logits: np.ndarray) -> Metrics:
    """Compare predictions with labels.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: predicted log odds, `[rows]`.

    Raises:
        DataError: there is no row.
    """
    if not len(labels):
        raise DataError("There is no row to compute metrics on: give the split at least one row.")
    labels = labels.astype(np.float64)
    logits = logits.astype(np.float64)
    base_rate = float(labels.mean())
    # -log p of the label seen, in a form that neither overflows nor cancels: softplus(logit) - label * logit.
    logloss = float((np.logaddexp(0.0, logits) - labels * logits).mean())
    mean_prediction = float(np.exp(-np.logaddexp(0.0, -logits)).mean())
    entropy = binary_entropy(base_rate)
    return Metrics(
        auc=area_under_roc(labels, logits),
        logloss=logloss,
        ne=logloss / entropy if entropy else math.nan,
        calibration=mean_prediction / base_rate if base_rate else math.nan,
        rows=len(labels),
        base_rate=base_rate,
    )


def area_under_roc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Probability that a random positive is scored above a random negative, ties counting one half.

    The Mann-Whitney statistic from mid-ranks; nan when one class is absent or a score is nan.
    """
    positives = int((labels == 1).sum())
    negatives = len(labels) - positives
    if not positives or not negatives or np.isnan(scores).any():
        return math.nan
    _, tie_group, group_sizes = np.unique(scores, return_inverse=True, return_counts=True)
    mid_ranks = group_sizes.cumsum() - (group_sizes - 1) / 2
    positives_of_group = np.bincount(tie_group[labels == 1], minlength=len(group_sizes))
    rank_sum = float(positives_of_group @ mid_ranks)
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def binary_entropy(rate: float) -> float:
    """Entropy in nats of a coin that shows 1 with probability `rate`."""
    return -sum(share * math.log(share) for share in (rate, 1 - rate) if share > 0)
