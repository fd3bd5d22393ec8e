"""Training loss of each task, by default the log loss, averaged over a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.recommender import LabelLosses
from shunter.registry import Entry, Registry

LOG_LOSS = "log_loss"
LOSSES = Registry("loss", {LOG_LOSS: Entry(target="shunter.engine.loop.loss:log_losses")}, group="shunter.losses")


def log_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the log loss of each label."""
    return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def mean_losses(logits: Tensor, labels: Tensor, shares: Tensor | None, loss: LabelLosses | None = None) -> Tensor:
    """Return the mean loss of a batch over the labels present, weighted where samples have weights.

    Args:
        logits: `[batch]`, or `[batch, tasks]`.
        labels: Labels of the samples, of the same shape as the logits; see `shunter.engine.data.batch.Batch`.
        shares: Share of each label in the mean; None weights all labels alike.
        loss: Loss of each label; None: the log loss.

    Returns:
        `[]`, or `[tasks]`; 0 for a task without a label in the batch.
    """
    if shares is None and logits.ndim == 1 and loss is None:
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)
    losses = (loss or log_losses)(logits, labels)
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
            f"({', '.join(tasks) or 'one without a name'}): give each a number from 0 on, the first a positive one."
        )
    return torch.tensor(weights, dtype=torch.float32, device=device)


def weighted_sum(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return the total loss `[]` for the backward pass: the loss of one task, or the (weighted) sum over several."""
    if losses.ndim == 0:
        return losses
    return losses.sum() if weights is None else losses @ weights
