"""Last layer of a model, which stays in float32 under autocast."""

import torch
from torch import Tensor, nn


class OutputLayer(nn.Linear):
    """Last layer, in float32 even under autocast: bf16 would leave three digits of a logit to speed up one product."""

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, inputs]` to `[batch, outputs]`."""
        return self.product(input, self.weight, self.bias)

    @staticmethod
    def product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return `nn.functional.linear` computed in float32."""
        with full_precision(input):
            return nn.functional.linear(input.float(), weight, bias)


def full_precision(like: Tensor) -> torch.autocast:
    """Return a context that disables autocast, on the device of a tensor."""
    return torch.autocast("cuda" if like.is_cuda else "cpu", enabled=False)
