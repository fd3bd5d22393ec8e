"""The last layer of a model, and what keeps it in float32."""

import torch
from torch import Tensor, nn


class OutputLayer(nn.Linear):
    """The last layer, in float32 under autocast too: bf16 keeps three digits of a logit, for one small product."""

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, inputs]` to `[batch, outputs]`."""
        return self.product(input, self.weight, self.bias)

    @staticmethod
    def product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """As `nn.functional.linear`."""
        with full_precision(input):
            return nn.functional.linear(input.float(), weight, bias)


def full_precision(like: Tensor) -> torch.autocast:
    """Switches autocast off, on the device of a tensor."""
    return torch.autocast("cuda" if like.is_cuda else "cpu", enabled=False)
