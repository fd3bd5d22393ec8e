"""Linear layers without the hidden units of least weight (magnitude pruning: Han et al., NeurIPS 2015).

Whole units are left out, on both sides of their ReLU: what is left is a dense layer that is really smaller. Single
weights of zero make no product faster on processors and GPUs until nearly all are.
"""

from typing import Self

import torch
from torch import Tensor, nn

from shunter.extensions.compression.compressed_linear import CompressedLinear
from shunter.models.output_layer import OutputLayer


class PrunedLinear(CompressedLinear):
    """A linear layer between some of the units that another one had.

    Args:
        inputs: Units that it reads.
        outputs: Units that it gives.
        has_bias: Whether it has a bias.
    """

    form = "pruned"
    weight: Tensor
    bias: Tensor | None

    def __init__(self, inputs: int, outputs: int, *, has_bias: bool) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.register_buffer("weight", torch.zeros(outputs, inputs))
        self.register_buffer("bias", torch.zeros(outputs) if has_bias else None)

    @classmethod
    def empty(cls, linear: nn.Linear, **options: int) -> Self:
        """One in the place of a layer; see the role."""
        if options.keys() != {"inputs", "outputs"}:
            raise ValueError(f"a pruned layer has inputs and outputs, not {', '.join(options) or 'none'}")
        inputs, outputs = options["inputs"], options["outputs"]
        if not (1 <= inputs <= linear.in_features and 1 <= outputs <= linear.out_features):
            raise ValueError(f"a pruned layer is no wider than the other, not {inputs} by {outputs}")
        return cls(inputs, outputs, has_bias=linear.bias is not None)

    @classmethod
    @torch.no_grad()
    def of(cls, linear: nn.Linear) -> Self:
        """One with the weights of a narrow layer."""
        made = cls(linear.in_features, linear.out_features, has_bias=linear.bias is not None)
        made.weight.copy_(linear.weight)
        if made.bias is not None:
            made.bias.copy_(linear.bias)
        return made

    @property
    def options(self) -> dict[str, int]:
        """What stands in `model.json`."""
        return {"inputs": self.inputs, "outputs": self.outputs}

    def rows(self, input: Tensor) -> Tensor:
        """`[rows, inputs]` to `[rows, outputs]`, the last layer's and all others in float32."""
        return OutputLayer.product(input, self.weight, self.bias)
