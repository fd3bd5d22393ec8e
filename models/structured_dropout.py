"""Structured dropout: the units that are dropped are the same for all samples of a batch, and drawn anew at each step.

What is dropped need not be multiplied, so that products of matrices become smaller in the forward pass and in both
halves of the backward pass (Sarma et al., "Structured in Space, Randomized in Time", NeurIPS 2021, arXiv 2106.12089).
Of two layers with dropout between them the first computes the units that are kept and no others, and the second reads
these. Small layers are computed whole and masked, which is faster there; the result is the same within rounding.
"""

import torch
from torch import Tensor, nn

from shunter.models.output_layer import OutputLayer

# Measured on one core of an AVX-512 processor in float32, batches from 256 to 4,096: below it, picking the weights of
# the units that are kept takes as long as leaving out the others saves.
LEAST_COMPACT_WIDTH = 96


def units_kept(width: int, share: float) -> int:
    """How many of some units are kept where a share of them is dropped: the same number at each step, at least one."""
    return max(1, round(width * (1 - share)))


def draw_kept(width: int, share: float, device: torch.device) -> Tensor:
    """Numbers of the units that are kept, int64 `[kept]` ascending, from the generator that dropout draws from."""
    return torch.randperm(width, device=device)[: units_kept(width, share)].sort().values


def is_compact(inputs: int, outputs: int) -> bool:
    """Whether a layer computes what is kept by itself instead of masking what is dropped."""
    return min(inputs, outputs) >= LEAST_COMPACT_WIDTH


def masked(values: Tensor, kept: Tensor) -> Tensor:
    """`[..., width]` with zeros for the units that are dropped."""
    mask = values.new_zeros(values.shape[-1]).index_fill_(0, kept, 1.0)
    return values * mask


def spread(values: Tensor, kept: Tensor, width: int) -> Tensor:
    """Map `[batch, kept]` to `[batch, width]`, with zeros for the units that are dropped."""
    return values.new_zeros(len(values), width).index_copy(1, kept, values)


class StructuredDropout(nn.Module):
    """Drops the same units of all samples of a batch; within a `StructuredMlp` these are not even computed.

    The units that are kept are multiplied by the inverse of their share, so that the mean stays. Their number is fixed,
    hence each is dropped with the probability that this number says.

    Args:
        share: Share of the units that is dropped.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def factor(self, width: int) -> float:
        """What units that are kept are multiplied by."""
        return width / units_kept(width, self.share)

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, ..., width]` to the same shape."""
        if not self.training or not self.share:
            return input
        kept = draw_kept(input.shape[-1], self.share, input.device)
        return masked(input, kept) * self.factor(input.shape[-1])


class StructuredMlp(nn.Sequential):
    """Linear layers with `StructuredDropout` between them; weights and names are those of any `nn.Sequential`.

    Where a layer is large enough (`is_compact`), its dropped units are computed neither by itself nor read by the next.
    With batch normalisation the statistics of a unit that is dropped stay as they are at that step.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, inputs]` to `[batch, outputs]`."""
        if not self.training:
            return super().forward(input)
        layers, values, place = list(self), input, 0
        kept: Tensor | None = None  # units that `values` has, of `width`; None is all
        width = input.shape[-1]
        while place < len(layers):
            layer = layers[place]
            if not isinstance(layer, nn.Linear):
                values = layer(values if kept is None else spread(values, kept, width))
                kept, width, place = None, values.shape[-1], place + 1
                continue
            block = _block(layers[place + 1 :])
            dropout = block[-1] if block and isinstance(block[-1], StructuredDropout) else None
            if dropout is None or not is_compact(layer.in_features, layer.out_features):
                values = _linear(layer, values, kept, None)
                kept, width, place = None, layer.out_features, place + 1
                continue
            units = draw_kept(layer.out_features, dropout.share, values.device)
            values = _linear(layer, values, kept, units)
            for between in block[:-1]:
                values = _normalised(between, values, units) if isinstance(between, nn.BatchNorm1d) else between(values)
            values = values * dropout.factor(layer.out_features)
            kept, width, place = units, layer.out_features, place + 1 + len(block)
        return values if kept is None else spread(values, kept, width)


def _block(layers: list[nn.Module]) -> list[nn.Module]:
    """What stands between a linear layer and the dropout behind it, and that; empty where there is none."""
    found: list[nn.Module] = []
    for layer in layers:
        found.append(layer)
        if isinstance(layer, StructuredDropout):
            return found
        if not isinstance(layer, nn.ReLU | nn.BatchNorm1d):
            return []
    return []


def _linear(layer: nn.Linear, values: Tensor, kept: Tensor | None, units: Tensor | None) -> Tensor:
    """What a layer makes of the inputs that are kept, of the units alone that are."""
    if kept is None and units is None:
        return layer(values)
    weight, bias = layer.weight, layer.bias
    if units is not None:
        weight, bias = weight.index_select(0, units), None if bias is None else bias.index_select(0, units)
    if kept is not None:
        weight = weight.index_select(1, kept)
    product = layer.product if isinstance(layer, OutputLayer) else nn.functional.linear
    return product(values, weight, bias)


def _normalised(norm: nn.BatchNorm1d, values: Tensor, units: Tensor) -> Tensor:
    """`[batch, kept]` normalised over the batch; the running statistics are those of the units alone."""
    mean, variance, count = norm.running_mean, norm.running_var, norm.num_batches_tracked
    assert mean is not None
    assert variance is not None
    assert count is not None
    assert norm.momentum is not None
    chosen = mean[units], variance[units]
    is_batch = len(values) > 1  # one sample has no variance (`shunter.models.layers.BatchNorm`)
    weight, bias = norm.weight.index_select(0, units), norm.bias.index_select(0, units)
    found = nn.functional.batch_norm(
        values, *chosen, weight, bias, training=is_batch, momentum=norm.momentum, eps=norm.eps
    )
    if is_batch:
        with torch.no_grad():
            count.add_(1)
            mean.index_copy_(0, units, chosen[0])
            variance.index_copy_(0, units, chosen[1])
    return found
