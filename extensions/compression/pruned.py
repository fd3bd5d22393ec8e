"""Linear layers without the hidden units of smallest weights (magnitude pruning: Han et al., NeurIPS 2015).

Whole units are removed, on both sides of their ReLU, which leaves a smaller dense layer. Single zero weights make no
product faster on CPUs and GPUs until nearly all weights are zero.
"""

from typing import Self

import torch
from torch import Tensor, nn

from shunter.extensions.compression.compressed_linear import CompressedLinear
from shunter.models.output_layer import OutputLayer


class PrunedLinear(CompressedLinear):
    """Linear layer between some of the units of a larger one.

    Args:
        inputs: Number of inputs.
        outputs: Number of outputs.
        has_bias: True if the layer has a bias.
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
        """Return a layer without weights that replaces a linear layer; see `CompressedLinear`."""
        if options.keys() != {"inputs", "outputs"}:
            raise ValueError(
                "a pruned layer has the options inputs and outputs, but the saved layer has "
                f"{', '.join(options) or 'none'}"
            )
        inputs, outputs = options["inputs"], options["outputs"]
        if not (1 <= inputs <= linear.in_features and 1 <= outputs <= linear.out_features):
            raise ValueError(f"a pruned layer with {inputs} inputs and {outputs} outputs is wider than the original")
        return cls(inputs, outputs, has_bias=linear.bias is not None)

    @classmethod
    @torch.no_grad()
    def of(cls, linear: nn.Linear) -> Self:
        """Return a layer with the weights of a narrow linear layer."""
        made = cls(linear.in_features, linear.out_features, has_bias=linear.bias is not None)
        made.weight.copy_(linear.weight)
        if made.bias is not None:
            made.bias.copy_(linear.bias)
        return made

    @property
    def options(self) -> dict[str, int]:
        """Return the layer's options, as stored in `model.json`."""
        return {"inputs": self.inputs, "outputs": self.outputs}

    def rows(self, input: Tensor) -> Tensor:
        """Map `[rows, inputs]` to `[rows, outputs]`, in float32."""
        return OutputLayer.product(input, self.weight, self.bias)
