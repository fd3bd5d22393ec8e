"""Dropout whose random numbers cost a processor little.

Torch draws a number of 32 bits for each value, one after another on most processors: by hand, on an AMD EPYC 6.6 ms for
819,200 values. Here a draw of 64 bits serves four values. A value is kept with a
probability that is a multiple of 2**-16, and what is kept is divided by this very probability, so the mean stays.
"""

import torch
from torch import Tensor, nn

STEPS = 2**16  # of the probability
_LOWEST = -(2**15)  # of what 16 bits hold with a sign


class Dropout(nn.Dropout):
    """As `torch.nn.Dropout`, which it is on a GPU and in compiled layers, whose kernels draw numbers as they go."""

    def forward(self, input: Tensor) -> Tensor:
        """`[...]` to the same."""
        return dropout(input, self.p) if self.training else input


def dropout(input: Tensor, share: float) -> Tensor:
    """Values with a share of them 0, and the others larger by as much, drawn from torch's own generator.

    Args:
        input: Floating-point values of any shape.
        share: Probability with which each is 0, from 0 to 1.
    """
    dropped = round(share * STEPS)
    if not dropped:
        return input
    if dropped == STEPS or input.device.type != "cpu" or torch.compiler.is_compiling():
        return nn.functional.dropout(input, share)
    bits = torch.empty((input.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    kept = torch.empty(input.shape, dtype=input.dtype)
    torch.ge(bits.view(torch.int16)[: input.numel()].view(input.shape), _LOWEST + dropped, out=kept)
    return input * kept.mul_(STEPS / (STEPS - dropped))
