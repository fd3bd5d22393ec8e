"""Structured dropout: all samples of a batch drop the same units, which are drawn again at each step.

Dropped units need not be computed, so matrix products become smaller in the forward pass and in both halves of the
backward pass (Sarma et al., "Structured in Space, Randomized in Time", NeurIPS 2021, arXiv 2106.12089). With dropout
between two layers, the first computes only the kept units, and the second reads only these. Small layers are computed
in full and masked, which is faster for them; the results are equal within rounding.
"""

import torch
from torch import Tensor, nn

from shunter.models.output_layer import OutputLayer

# Measured on one core of an AVX-512 processor in float32, with batches from 256 to 4,096: below this width, gathering
# the weights of the kept units takes as long as the smaller product saves.
LEAST_COMPACT_WIDTH = 96


def units_kept(width: int, share: float) -> int:
    """Return the number of units that are kept if a share is dropped: the same at each step, at least one."""
    return max(1, round(width * (1 - share)))


def draw_kept(width: int, share: float, device: torch.device) -> Tensor:
    """Draw the units to keep, int64 `[kept]` ascending, from the generator that torch's dropout uses."""
    return torch.randperm(width, device=device)[: units_kept(width, share)].sort().values


def is_compact(inputs: int, outputs: int) -> bool:
    """Return True if a layer computes only the kept units instead of masking the dropped ones."""
    return min(inputs, outputs) >= LEAST_COMPACT_WIDTH


def masked(values: Tensor, kept: Tensor) -> Tensor:
    """Return `[..., width]` with zeros for the dropped units."""
    mask = values.new_zeros(values.shape[-1]).index_fill_(0, kept, 1.0)
    return values * mask


def spread(values: Tensor, kept: Tensor, width: int) -> Tensor:
    """Map `[batch, kept]` to `[batch, width]`, with zeros for the dropped units."""
    return values.new_zeros(len(values), width).index_copy(1, kept, values)


class StructuredDropout(nn.Module):
    """Drops the same units of all samples of a batch; within a `StructuredMlp` dropped units are not even computed.

    The kept units are divided by their share, so that the mean is unchanged. Their number is fixed, so the dropout
    probability follows from the rounded number.

    Args:
        share: Share of the units to drop.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def factor(self, width: int) -> float:
        """Factor by which the kept units are scaled up."""
        return width / units_kept(width, self.share)

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, ..., width]` to the same shape."""
        if not self.training or not self.share:
            return input
        kept = draw_kept(input.shape[-1], self.share, input.device)
        return masked(input, kept) * self.factor(input.shape[-1])


class StructuredMlp(nn.Sequential):
    """Linear layers with `StructuredDropout` between them; weights and names are those of any `nn.Sequential`.

    If a layer is large enough (`is_compact`), its dropped units are neither computed nor read by the next layer. With
    batch normalisation, the running statistics of a dropped unit do not change in that step.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, inputs]` to `[batch, outputs]`."""
        if not self.training:
            return super().forward(input)
        layers, values, place = list(self), input, 0
        kept: Tensor | None = None  # indices of the units in `values`, out of `width`; None is all
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
    """Return the layers from a linear layer up to the dropout after it, dropout included; empty if there is none."""
    found: list[nn.Module] = []
    for layer in layers:
        found.append(layer)
        if isinstance(layer, StructuredDropout):
            return found
        if not isinstance(layer, nn.ReLU | nn.BatchNorm1d):
            return []
    return []


def _linear(layer: nn.Linear, values: Tensor, kept: Tensor | None, units: Tensor | None) -> Tensor:
    """Apply a layer to the kept inputs, and compute only the kept units."""
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
    """Normalise `[batch, kept]` over the batch, with the running statistics of these units alone."""
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
