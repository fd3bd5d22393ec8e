"""Training loss of each task, by default the log loss, averaged over a batch."""

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
