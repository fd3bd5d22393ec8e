"""What is minimised: the log loss of each task, averaged over a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.errors import RequestError


def mean_losses(logits: Tensor, labels: Tensor, shares: Tensor | None) -> Tensor:
    """Mean log loss over a batch, weighted where samples have weights, over those that have the label.

    Args:
        logits: `[batch]`, or `[batch, tasks]`.
        labels: Labels of the samples, like the logits; see `shunter.engine.data.batch.Batch`.
        shares: Share of each label in the mean; None: all are alike.

    Returns:
        `[]`, or `[tasks]`; 0 for a task of which the batch has no label.
    """
    if shares is None and logits.ndim == 1:
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)
    losses = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    return losses.mean(0) if shares is None else (losses * shares).sum(0)


def task_weights(weights: Sequence[float], tasks: Sequence[str], device: str | torch.device) -> Tensor | None:
    """The weights of the tasks' losses in their sum, `[tasks]`; None where all are 1.

    Args:
        weights: one for each task; empty: all are 1.
        tasks: their names, the main one first.
        device: Device of the losses.

    Raises:
        RequestError: they are not as many, one is negative, or that of the main task is not positive.
    """
    if not weights:
        return None
    if len(weights) != len(tasks) or min(weights) < 0 or not weights[0] > 0:
        raise RequestError(
            f"The task weights {', '.join(map(str, weights))} do not suit the {len(tasks)} labels "
            f"({', '.join(tasks) or 'one without a name'}): give each a number from 0 on, the first a positive one."
        )
    return torch.tensor(weights, dtype=torch.float32, device=device)


def weighted_sum(losses: Tensor, weights: Tensor | None) -> Tensor:
    """What backward starts from: the loss of the one task, or the sum of several, weighted where they have weights."""
    if losses.ndim == 0:
        return losses
    return losses.sum() if weights is None else losses @ weights
