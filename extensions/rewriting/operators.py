"""Operators that rules use as replacements, exact on every device, and faster in float32 on a CPU."""

from typing import Any

import torch
from torch import Tensor, nn

from shunter.models.layers import PairwiseProducts
from shunter.models.native.pairs import is_built

linear = nn.functional.linear


def pairwise_products(vectors: Tensor, pairs: Tensor, position: Tensor) -> Tensor:
    """Map `[batch, vectors, dim]` to `[batch, pairs]`; see `shunter.models.layers.DotInteraction`."""
    if vectors.device.type == "meta" or not torch.is_grad_enabled() or vectors.dtype != torch.float32:
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)
    return PairwiseProducts.apply(vectors, pairs, position, is_built())  # pyright: ignore[reportReturnType]


def fused_linear(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Compute a linear layer with its activation in one oneDNN operator, which writes the result only once.

    Args:
        input: `[..., inputs]`.
        weight: `[outputs, inputs]`.
        bias: `[outputs]`.
        activation: `relu` or `none`.
    """
    has_kernel = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if input.device.type != "cpu" or input.dtype != torch.float32 or not len(input) or not has_kernel:
        result = linear(input, weight, bias)
        return torch.relu(result) if activation == "relu" else result
    if torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad):
        return _FusedLinear.apply(input, weight, bias, activation)  # pyright: ignore[reportReturnType]
    return _kernel(input, weight, bias, activation)


def _kernel(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(input, weight, bias, activation, [], "")


class _FusedLinear(torch.autograd.Function):
    """Fused linear layer with gradient; only the result is saved, because its zeros give the ReLU's gradient."""

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
        return _kernel(input, weight, bias, activation)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        input, weight, bias, activation = inputs
        ctx.is_relu, ctx.has_bias = activation == "relu", bias is not None
        ctx.save_for_backward(input, weight, *([output] if ctx.is_relu else []))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        input, weight, *output = ctx.saved_tensors
        gradient = gradients[0]
        if ctx.is_relu:
            gradient = torch.ops.aten.threshold_backward(gradient, output[0], 0)
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_input = gradient @ weight if ctx.needs_input_grad[0] else None
        of_weight = rows.t() @ input.reshape(-1, input.shape[-1]) if ctx.needs_input_grad[1] else None
        of_bias = rows.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return of_input, of_weight, of_bias, None


def mixed_vectors(weight: Tensor, vectors: Tensor) -> Tensor:
    """Return linear combinations of each sample's vectors, without transposing the tensor.

    Args:
        weight: Coefficients of the combinations, `[l, m]`.
        vectors: Vectors of each sample, `[batch, m, dim]`.

    Returns:
        Linear combinations, `[batch, l, dim]`.
    """
    return torch.bmm(weight.expand(vectors.shape[0], -1, -1), vectors)
