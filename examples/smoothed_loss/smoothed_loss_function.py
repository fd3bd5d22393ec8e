"""The log loss of labels that are moved towards 1/2, so that no click counts as certain."""

from torch import Tensor, nn

SMOOTHING = 0.05


def smoothed_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of each label; logits and labels have the same shape."""
    labels = labels * (1 - SMOOTHING) + SMOOTHING / 2
    return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
