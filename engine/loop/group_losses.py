"""Losses that compare the rows of a group, such as a user's or a session's, within a batch.

Each loss is added to the log loss (Sculley, "Combined Regression and Ranking", KDD 2010), so that predictions remain
probabilities and are evaluated as such. The loader puts the rows of a group next to each other, and shuffles the order
in each epoch. The rows of a group that spans two batches are compared within each batch only.
"""

import torch
from torch import Tensor, nn

from shunter.engine.loop.loss import log_losses


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
