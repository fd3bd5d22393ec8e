"""Training loss of each task, by default the log loss, averaged over a batch.

A loss that compares the rows of a group, such as a user's or a session's, is added to the log loss, so that predictions
remain probabilities (Sculley, "Combined Regression and Ranking", KDD 2010). The loader puts the rows of a group next to
each other, and shuffles the order in each epoch. The rows of a group that spans two batches are compared within each
batch only.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from shunter.engine.data.dataset import Dataset
from shunter.errors import RequestError, UnsupportedError
from shunter.label_losses import LOG_LOSS, LOSSES, compares_groups, parse_loss
from shunter.models.recommender import LabelLosses


def load_loss(text: str) -> LabelLosses | None:
    """Return the loss function with a name and a parameter, such as `focal:2`; None for the log loss.

    Raises:
        UnknownNameError: No loss has this name.
        MissingExtensionError: The loss is of an extension whose folder is absent.
        RequestError: The parameter does not suit the loss.
    """
    name, parameter = parse_loss(text)
    if name == LOG_LOSS:
        return None
    loss = LOSSES.load(name)
    return partial(loss, parameter=parameter) if parameter else loss


def group_field(loss: str, dataset: Dataset) -> str | None:
    """Return the name of the field whose values group the rows of a loss; None for a loss of single rows.

    Raises:
        UnsupportedError: The schema has no group or user column, or has several labels or a numeric label.
    """
    if not compares_groups(loss):
        return None
    single = [field.name for field in dataset.features.categorical if not field.multi_valued]
    if dataset.grouped_by not in single:
        raise UnsupportedError(f"learn by the loss {loss}", dataset.name, "a schema that names `group` or `user`")
    if len(dataset.features.tasks) > 1 or dataset.features.number is not None:
        raise UnsupportedError(f"learn by the loss {loss}", dataset.name, "a single label that is a click")
    return dataset.grouped_by


def log_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the log loss of each label."""
    return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def focal_losses(logits: Tensor, labels: Tensor, parameter: float) -> Tensor:
    """Return the focal loss of each label: its log loss times `(1 - p) ** parameter`.

    p is the predicted probability of the label that occurred, so that rows that are predicted well count less (Lin et
    al., "Focal Loss for Dense Object Detection", ICCV 2017).
    """
    log_loss = log_losses(logits, labels)
    missed = -torch.expm1(-log_loss)
    return missed.clamp_min(torch.finfo(missed.dtype).tiny) ** parameter * log_loss  # a root has no gradient at 0


def mean_losses(
    logits: Tensor,
    labels: Tensor,
    shares: Tensor | None,
    loss: LabelLosses | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """Return the mean loss of a batch over the labels present, weighted where samples have weights.

    Args:
        logits: `[batch]`, or `[batch, tasks]`.
        labels: Labels of the samples, of the same shape as the logits; see `shunter.engine.data.batch.Batch`.
        shares: Weight of each label in the mean; None weights all labels equally.
        loss: Loss of each label; None: the log loss.
        groups: Group of each sample, for a loss that compares the samples of a group.

    Returns:
        `[]`, or `[tasks]`; 0 for a task without a label in the batch.
    """
    if shares is None and logits.ndim == 1 and loss is None:
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)
    losses = (loss or log_losses)(logits, labels, *(() if groups is None else (groups,)))
    return losses.mean(0) if shares is None else (losses * shares).sum(0)


def task_weights(weights: Sequence[float], tasks: Sequence[str], device: str | torch.device) -> Tensor | None:
    """Return the weights of the tasks' losses in the total loss, float32 `[tasks]`; None if no weights are given.

    Args:
        weights: One weight for each task; empty: all weights are 1.
        tasks: Names of the tasks, the main task first.
        device: Device of the losses.

    Raises:
        RequestError: The number of weights differs from the number of tasks, a weight is negative, or the weight of the
            main task is not positive.
    """
    if not weights:
        return None
    if len(weights) != len(tasks) or min(weights) < 0 or not weights[0] > 0:
        raise RequestError(
            f"The task weights {', '.join(map(str, weights))} do not suit the {len(tasks)} labels "
            f"({', '.join(tasks) or 'one without a name'}): give each label a weight of at least 0, and "
            "the first one a weight above 0."
        )
    return torch.tensor(weights, dtype=torch.float32, device=device)


def weighted_sum(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return the total loss `[]` for the backward pass: the loss of one task, or the (weighted) sum over several."""
    if losses.ndim == 0:
        return losses
    return losses.sum() if weights is None else losses @ weights


def bpr_losses(logits: Tensor, labels: Tensor, groups: Tensor, parameter: float) -> Tensor:
    """Return the log loss of each row, plus for a positive row `parameter` times its pairwise loss.

    The n-th positive of a group is compared with the n-th negative of the group; after the last negative the first one
    follows again (Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", UAI 2009). In a group
    without negatives the pairwise loss is 0.

    Args:
        logits: Predicted log odds, `[rows]`.
        labels: 0 or 1, `[rows]`.
        groups: Number of the group of each row, `[rows]`; -1 is a row without a group.
        parameter: Weight of the pairwise loss.
    """
    group, is_positive, count = _numbered(groups), labels > 0, len(labels)
    negatives = torch.zeros(count, dtype=torch.int64, device=logits.device).index_add_(0, group, (~is_positive).long())
    order = torch.argsort(group * 2 + is_positive.long(), stable=True)  # by group, the negatives of each first
    starts = torch.searchsorted(group[order], torch.arange(count, device=logits.device))
    chosen = starts[group] + _places(group, is_positive) % negatives[group].clamp_min(1)
    partner = order[chosen.clamp(max=count - 1)]
    compares = is_positive & (negatives[group] > 0) & (groups >= 0)
    pairs = nn.functional.softplus(logits[partner] - logits)
    return log_losses(logits, labels) + parameter * torch.where(compares, pairs, torch.zeros_like(pairs))


def softmax_losses(logits: Tensor, labels: Tensor, groups: Tensor, parameter: float) -> Tensor:
    """Return the log loss of each row, plus for a positive row `parameter` times its softmax loss.

    The softmax is over the positive and those negatives of its group that are in the batch.

    Args:
        logits: Predicted log odds, `[rows]`.
        labels: 0 or 1, `[rows]`.
        groups: Number of the group of each row, `[rows]`; -1 is a row without a group.
        parameter: Weight of the softmax loss.
    """
    group, is_positive = _numbered(groups), labels > 0
    lowest = torch.finfo(logits.dtype).min
    masked = logits.masked_fill(is_positive, lowest)
    highest = torch.full_like(logits, lowest).scatter_reduce(0, group, masked.detach(), "amax")
    terms = torch.where(is_positive, 0.0, (masked - highest[group]).exp())
    sums = torch.zeros_like(logits).index_add(0, group, terms)
    has_negative = sums > 0
    of_negatives = torch.where(has_negative, highest + sums.clamp_min(torch.finfo(logits.dtype).tiny).log(), lowest)
    compares = is_positive & has_negative[group] & (groups >= 0)
    listwise = nn.functional.softplus(torch.where(compares, of_negatives[group], logits) - logits)
    return log_losses(logits, labels) + parameter * torch.where(compares, listwise, torch.zeros_like(listwise))


def _numbered(groups: Tensor) -> Tensor:
    """Return the group of each row as a number from 0 up to less than the number of rows, int64 `[rows]`."""
    return torch.unique(groups, return_inverse=True)[1]


def _places(group: Tensor, counts: Tensor) -> Tensor:
    """Return for each row the number of earlier rows of its group for which `counts` is True, int64 `[rows]`."""
    order = torch.argsort(group, stable=True)
    running = counts[order].long().cumsum(0) - counts[order].long()
    sizes = torch.bincount(group, minlength=1)
    starts = sizes.cumsum(0) - sizes
    within = running - running[starts][group[order]]
    return torch.empty_like(within).scatter_(0, order, within)
