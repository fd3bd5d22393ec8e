"""Metrics of predicted click probabilities, or of predicted numbers.

A further metric is a function of labels `[rows]` (0 or 1), logits `[rows]` (predicted log odds) and weights `[rows]` or
None that returns a number. Every registered metric (`METRICS`) is computed together with the AUC.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from shunter.engine.config import SelectBy
from shunter.errors import DataError
from shunter.models.spec import NumberLabel
from shunter.record import OPTIONAL, Record
from shunter.registry import Registry

METRICS = Registry("metric", {}, group="shunter.metrics")  # beside those of `Metrics`

FIGURES: dict[SelectBy, str] = {  # labels of the metrics
    "ne": "NE",
    "auc": "AUC",
    "logloss": "log loss",
    "ndcg@20": "NDCG@20",
    "recall@20": "recall@20",
}
# Metrics by their names in runs, with their labels: those of clicks, and those of numbers.
CLICK_FIGURES = {"auc": "AUC", "ne": "NE", "logloss": "log loss", "calibration": "calibration"}
NUMBER_FIGURES = {"rmse": "RMSE", "mae": "MAE", "relative_loss": "relative loss", "calibration": "calibration"}


@dataclass(frozen=True, kw_only=True)
class Metrics(Record):
    """Metrics over one set of rows, weighted where rows have weights.

    A set with one label only has no ranking and no entropy: `auc` and `ne` are then nan, and `calibration` is nan
    without any positive row. Rows of weight 0 are ignored; if all rows have weight 0, all metrics are nan.

    Attributes:
        auc: Area under the ROC curve; a tie between a positive and a negative counts one half.
        logloss: Mean negative log likelihood, in nats.
        ne: Normalised entropy, `logloss` over the entropy of the base rate; below 1 is better than always predicting
            the base rate.
        calibration: Mean prediction over base rate; 1 is unbiased.
        rows: Number of scored rows with positive weight.
        base_rate: Share of positives in these rows, by weight.
        others: With several tasks, metrics of the tasks besides the main task, by name.
        more: Values of the metrics that installed packages add (`METRICS`), by name.
        rmse: Root of the mean squared error of predicted numbers, in their unit; None for clicks.
        mae: Mean absolute error of predicted numbers, in their unit; None for clicks.

    If labels are numbers, `logloss` is the mean loss by which they are learned, and `ne` is that loss over the loss of
    the best constant prediction. Below 1 is better than that constant, as for clicks. `base_rate` is the mean label and
    `auc` is nan.
    """

    auc: float
    logloss: float
    ne: float
    calibration: float
    rows: int
    base_rate: float
    others: "dict[str, Metrics]" = field(default_factory=dict)
    more: dict[str, float] = field(default_factory=dict, metadata=OPTIONAL)
    rmse: float | None = field(default=None, metadata=OPTIONAL)
    mae: float | None = field(default=None, metadata=OPTIONAL)

    @property
    def relative_loss(self) -> float:
        """Mean loss, divided by the loss of the best constant prediction."""
        return self.ne

    @property
    def labels(self) -> dict[str, str]:
        """Names of the metrics for this kind of label (clicks or numbers), with their display labels."""
        return CLICK_FIGURES if self.rmse is None else NUMBER_FIGURES

    @property
    def figures(self) -> dict[str, float]:
        """Metrics of the main task by name, for its kind of label (clicks or numbers)."""
        return {**{name: getattr(self, name) for name in self.labels}, **self.more}

    def loss_by(self, select_by: SelectBy) -> float:
        """Return a metric as a loss to minimise: NE and log loss unchanged, 1 - AUC for the AUC."""
        return 1 - self.auc if select_by == "auc" else getattr(self, select_by)


def figure_name(select_by: SelectBy, *, is_number: bool) -> str:
    """Return the display label of the selection metric; for labels that are numbers, of the relative loss."""
    return NUMBER_FIGURES["relative_loss"] if is_number else FIGURES[select_by]


def figure_of(loss: float, select_by: SelectBy) -> float:
    """Return the metric from its loss; inverse of `Metrics.loss_by`."""
    return 1 - loss if select_by == "auc" else loss


def compute_task_metrics(
    tasks: Sequence[str],
    labels: np.ndarray,
    logits: np.ndarray,
    weights: np.ndarray | None = None,
    number: NumberLabel | None = None,
) -> Metrics:
    """Compute the metrics of predictions for each task.

    Args:
        tasks: Names, the main task first; empty or one name for a single task.
        labels: 0 or 1, `[rows]`, or `[rows, tasks]` with several tasks.
        logits: Predicted log odds, of the same shape.
        weights: Not negative, of the same shape; None weights all rows alike.
        number: Description of a single label that is a number; None for clicks.

    Raises:
        DataError: There is no row.
    """
    if labels.ndim == 1:
        return compute_metrics(labels, logits, weights, number)
    first, *others = (
        compute_metrics(labels[:, task], logits[:, task], None if weights is None else weights[:, task])
        for task in range(len(tasks))
    )
    return replace(first, others=dict(zip(tasks[1:], others, strict=True)))


def compute_metrics(
    labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None, number: NumberLabel | None = None
) -> Metrics:
    """Compute the metrics of predictions.

    Args:
        labels: 0 or 1, or numbers, `[rows]`.
        logits: Predicted log odds, or outputs for numbers, `[rows]`.
        weights: Not negative, `[rows]`; None weights all rows alike.
        number: Description of a label that is a number; None for clicks.

    Raises:
        DataError: There is no row.
    """
    if not len(labels):
        raise DataError("There is no row to compute metrics on: give the split at least one row.")
    if number is not None:
        return _compute_numbers(labels, logits, np.ones(len(labels)) if weights is None else weights, number)
    if weights is not None:
        return _compute_weighted(labels, logits, weights)
    labels, logits = labels.astype(np.float64), logits.astype(np.float64)
    base_rate = float(labels.mean())
    # -log p of the observed label, in a form that neither overflows nor cancels: softplus(logit) - label * logit.
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
        more=further_metrics(labels, logits, None),
    )


def _compute_numbers(labels: np.ndarray, outputs: np.ndarray, weights: np.ndarray, number: NumberLabel) -> Metrics:
    """Compute the metrics of predicted numbers, with each row multiplied by its weight."""
    counts = weights > 0
    labels, outputs, weights = (values[counts].astype(np.float64) for values in (labels, outputs, weights))
    if not len(labels):
        undefined = dict.fromkeys(("auc", "logloss", "ne", "calibration", "base_rate", "rmse", "mae"), math.nan)
        return Metrics(rows=0, **undefined)
    shares = weights / weights.sum()
    errors, mean = predict(outputs, number) - labels, float(shares @ labels)
    loss = float(shares @ row_losses(labels, outputs, number))
    constant = float(shares @ constant_losses(labels, weights, number))
    return Metrics(
        auc=math.nan,
        logloss=loss,
        ne=loss / constant if constant else math.nan,
        calibration=float(shares @ (errors + labels)) / mean if mean else math.nan,
        rows=len(labels),
        base_rate=mean,
        rmse=root_mean_square(errors, shares),
        mae=float(shares @ np.abs(errors)),
    )


def root_mean_square(values: np.ndarray, shares: np.ndarray | None = None) -> float:
    """Return the root of the mean square, weighted by shares whose sum is 1 if they are given."""
    squares = values.astype(np.float64) ** 2
    return math.sqrt(float(squares.mean() if shares is None else shares @ squares))


def row_losses(labels: np.ndarray, logits: np.ndarray, number: NumberLabel | None = None) -> np.ndarray:
    """Return the loss of each row, float64 `[rows]`: the log loss in nats, or the loss of a label that is a number."""
    labels, logits = labels.astype(np.float64), logits.astype(np.float64)
    if number is None:
        return np.logaddexp(0.0, logits) - labels * logits  # softplus(logit) - label * logit, which cannot overflow
    import torch

    from shunter.engine.number_losses import number_loss

    return number_loss(number).losses(torch.from_numpy(logits), torch.from_numpy(labels)).numpy()


def constant_losses(labels: np.ndarray, weights: np.ndarray, number: NumberLabel) -> np.ndarray:
    """Return the loss of each row under the best constant prediction, float64 `[rows]`."""
    import torch

    from shunter.engine.number_losses import number_loss

    loss = number_loss(number)
    of_rows, counts = (torch.from_numpy(values.astype(np.float64)) for values in (labels, weights))
    return loss.losses(loss.best_constant(of_rows, counts).expand_as(of_rows), of_rows).numpy()


def predict(logits: np.ndarray, number: NumberLabel | None = None) -> np.ndarray:
    """Return the predictions of log odds or outputs, float64: probabilities, or numbers in the unit of the label."""
    import torch

    values = torch.from_numpy(np.ascontiguousarray(logits)).double()
    if number is None:
        return torch.sigmoid(values).numpy()
    from shunter.engine.number_losses import number_loss

    return number_loss(number).predictions(values).numpy()


def on_scale(logits: np.ndarray, own: NumberLabel | None, given: NumberLabel | None) -> np.ndarray:
    """Convert model outputs for a numeric label to the scale of another description of the label.

    Outputs of an ordinal loss cannot be converted: evaluate them on their own scale, which is comparable because the
    loss is a likelihood.

    Args:
        logits: Outputs, `[rows]`; log odds of clicks are returned unchanged.
        own: Description by which the model was trained; None for clicks.
        given: Description of the target scale; None for clicks.
    """
    if own is None or given is None or own == given:
        return logits
    import torch

    from shunter.engine.number_losses import number_loss

    return number_loss(given).outputs(torch.from_numpy(predict(logits, own))).numpy()


def further_metrics(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
    """Return the value of each metric of `METRICS`, by name."""
    return {name: float(METRICS.load(name)(labels, logits, weights)) for name in METRICS.names}


def _compute_weighted(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray) -> Metrics:
    """Compute the metrics of `compute_metrics` with each row multiplied by its weight."""
    counts = weights > 0
    labels, logits, weights = (values[counts].astype(np.float64) for values in (labels, logits, weights))
    total, positive = float(weights.sum()), float(weights @ labels)
    if not total:
        return Metrics(auc=math.nan, logloss=math.nan, ne=math.nan, calibration=math.nan, rows=0, base_rate=math.nan)
    base_rate = positive / total if (labels == 0).any() else 1.0
    logloss = float(weights @ (np.logaddexp(0.0, logits) - labels * logits)) / total
    entropy = binary_entropy(base_rate)
    return Metrics(
        auc=area_under_roc(labels, logits, weights),
        logloss=logloss,
        ne=logloss / entropy if entropy else math.nan,
        calibration=float(weights @ np.exp(-np.logaddexp(0.0, -logits))) / positive if positive else math.nan,
        rows=len(labels),
        base_rate=base_rate,
        more=further_metrics(labels, logits, weights),
    )


def area_under_roc(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the probability that a random positive is scored above a random negative, ties counting one half.

    The value is the Mann-Whitney statistic from mid-ranks; nan if one label is absent or a score is nan. With weights,
    samples are drawn in proportion to their weights.
    """
    if weights is not None:
        return _weighted_area(labels, scores, weights)
    positives = int((labels == 1).sum())
    negatives = len(labels) - positives
    if not positives or not negatives or np.isnan(scores).any():
        return math.nan
    _, tie_group, group_sizes = np.unique(scores, return_inverse=True, return_counts=True)
    mid_ranks = group_sizes.cumsum() - (group_sizes - 1) / 2
    positives_of_group = np.bincount(tie_group[labels == 1], minlength=len(group_sizes))
    rank_sum = float(positives_of_group @ mid_ranks)
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def _weighted_area(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted AUC: positives win against all negatives of lower score, and half against equal scores."""
    labels, scores, weights = (values[weights > 0] for values in (labels, scores, weights))
    is_positive = labels == 1
    if is_positive.all() or not is_positive.any() or np.isnan(scores).any():
        return math.nan
    distinct, group = np.unique(scores, return_inverse=True)
    positives = np.bincount(group, weights=weights * is_positive, minlength=len(distinct))
    negatives = np.bincount(group, weights=weights * ~is_positive, minlength=len(distinct))
    won = positives @ (negatives.cumsum() - negatives / 2)
    return float(won / (positives.sum() * negatives.sum()))


def grouped_area_under_roc(
    labels: np.ndarray, scores: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Return the AUC within each group, weighted by the group's rows: GAUC (Zhou et al., KDD 2018, equation 9).

    With users as groups it measures how well each user's own rows are ranked. The AUC over all rows also counts that
    users differ in how often they click. A group with one label only has no ranking and is left out.

    Args:
        labels: 0 or 1, `[rows]`.
        scores: Scores that grow with the predicted probability, `[rows]`.
        groups: Id of the group of each row, `[rows]`.
        weights: Not negative, `[rows]`; None weights all rows alike.

    Returns:
        nan if no group has both labels, or a score is nan.
    """
    weights = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
    order = np.lexsort((scores, groups))
    order = order[weights[order] > 0]
    labels, scores, groups, weights = (values[order] for values in (labels, scores, groups, weights))
    if not len(labels) or np.isnan(scores).any():
        return math.nan
    is_new_group = groups[1:] != groups[:-1]
    ties = np.flatnonzero(np.concatenate([[True], is_new_group | (scores[1:] != scores[:-1])]))
    group = np.concatenate([[0], is_new_group.cumsum()])[ties]
    positives, negatives = (np.add.reduceat(weights * (labels == label), ties) for label in (1, 0))
    below = negatives.cumsum() - negatives
    below -= below[np.searchsorted(group, np.arange(group[-1] + 1))][group]  # only within the same group
    won = np.bincount(group, positives * (below + negatives / 2))
    of_group = [np.bincount(group, values) for values in (positives, negatives)]
    pairs, rows = of_group[0] * of_group[1], of_group[0] + of_group[1]
    judged = pairs > 0
    return float(rows[judged] @ (won[judged] / pairs[judged]) / rows[judged].sum()) if judged.any() else math.nan


def grouped_ranking(labels: np.ndarray, scores: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Return NDCG and mean reciprocal rank of the rows within each group, the mean over groups with both labels.

    A positive gains 1, discounted by the logarithm of its rank. Rows of equal scores share the mean discount of their
    ranks. The reciprocal rank is that of the first positive; a negative with an equal score counts half a rank.

    Args:
        labels: 0 or 1, `[rows]`.
        scores: Scores that grow with the predicted probability, `[rows]`.
        groups: Id of the group of each row, `[rows]`.

    Returns:
        nan, nan if no group has both labels, or a score is nan.
    """
    if not len(labels) or np.isnan(scores).any():
        return math.nan, math.nan
    order = np.lexsort((-scores, groups))
    labels, scores, groups = labels[order] > 0, scores[order], groups[order]
    is_first = np.concatenate([[True], groups[1:] != groups[:-1]])
    group, starts = is_first.cumsum() - 1, np.flatnonzero(is_first)
    rank = np.arange(len(labels)) - starts[group]
    tie = np.concatenate([[True], (scores[1:] != scores[:-1]) | is_first[1:]]).cumsum() - 1
    discounts = 1 / np.log2(rank + 2)
    gains = np.bincount(tie, discounts)[tie] / np.bincount(tie)[tie] * labels
    positives, rows = np.bincount(group, labels), np.bincount(group)
    best = np.concatenate([[0.0], (1 / np.log2(np.arange(2, rows.max() + 2))).cumsum()])[positives.astype(int)]
    tied_negatives, first_of_tie = np.bincount(tie, ~labels)[tie], np.unique(tie, return_index=True)[1][tie]
    first_rank = np.where(labels, first_of_tie - starts[group] + tied_negatives / 2 + 1, np.inf)
    judged = (positives > 0) & (positives < rows)
    if not judged.any():
        return math.nan, math.nan
    ndcg = np.bincount(group, gains)[judged] / best[judged]
    return float(ndcg.mean()), float((1 / np.minimum.reduceat(first_rank, starts)[judged]).mean())


def binary_entropy(rate: float) -> float:
    """Return the entropy in nats of a Bernoulli variable that is 1 with probability `rate`."""
    return -sum(share * math.log(share) for share in (rate, 1 - rate) if share > 0)
