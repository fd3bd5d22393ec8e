"""Equality check of two programs by values and gradients, in float64, for several batch sizes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shunter.extensions.rewriting.program import Program

VALUE_TOLERANCE, GRADIENT_TOLERANCE = 1e-10, 1e-9  # relative to the largest number


@dataclass(frozen=True)
class Deviation:
    """Largest differences between the results of two programs, relative to the largest number of each result.

    Attributes:
        values: Difference of the logits.
        gradients: Difference of the gradients of inputs and of the original weights.
    """

    values: float
    gradients: float

    @property
    def is_none(self) -> bool:
        """Return True if the differences of values and of gradients are both within rounding error."""
        return self.values <= VALUE_TOLERANCE and self.gradients <= GRADIENT_TOLERANCE


def deviation(one: Program, other: Program, batches: Sequence[Sequence[Tensor]]) -> Deviation:
    """Compare two programs of the same layers, which are switched to evaluation mode temporarily.

    Args:
        one: Original program.
        other: Rewritten program, whose weights are computed from the original weights.
        batches: Inputs, converted to float64.
    """
    root, was_training = one.root, one.root.training
    values = gradients = 0.0
    root.eval()
    try:
        for batch in batches:
            first, second = (_both(program, batch) for program in (one, other))
            values = max(values, _largest(first[:1], second[:1]))
            gradients = max(gradients, _largest(first[1:], second[1:]))
    finally:
        root.train(was_training)
    return Deviation(values, gradients)


def _both(program: Program, batch: Sequence[Tensor]) -> list[Tensor]:
    """Return the logits, and the gradients of all inputs and weights."""
    tensors = {
        name: tensor.detach().double().requires_grad_(isinstance(tensor, torch.nn.Parameter))
        for name, tensor in (*program.root.named_parameters(), *program.root.named_buffers())
        if tensor.is_floating_point()
    }
    inputs = [one.double().requires_grad_() if one.is_floating_point() else one for one in batch]
    logits = program.run(inputs, tensors)
    wanted = [one for one in (*inputs, *tensors.values()) if one.requires_grad]
    weights = torch.linspace(0.5, 1.5, logits.numel(), dtype=torch.float64).view(logits.shape)
    found = torch.autograd.grad(logits, wanted, weights, allow_unused=True)
    zeros = (
        torch.zeros_like(one) if gradient is None else gradient for one, gradient in zip(wanted, found, strict=True)
    )
    return [logits.detach(), *zeros]


def _largest(some: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    found = 0.0
    for one, other in zip(some, others, strict=True):
        if one.numel():
            size = max(float(one.abs().max()), 1e-3)
            difference = float((one - other).abs().max())
            found = max(found, float("inf") if math.isnan(difference) else difference / size)
    return found
