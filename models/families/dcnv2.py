"""DCN-V2: a cross network beside or below a deep network (Wang et al., WWW 2021, arXiv 2008.13535)."""

import torch
from torch import Tensor, nn

from models.layers import FieldVectors, hidden_layers, task_heads
from models.spec import Features, ModelSpec


class CrossNetwork(nn.Module):
    """Cross layers, version 2: `x_{l+1} = x_0 * (W_l x_l + b_l) + x_l`, elementwise product.

    After n layers the output holds all interactions of the input up to degree n + 1. At low rank each
    matrix is a product `W_l = U_l V_l^T`, which costs 2 * width * rank instead of width^2.

    Args:
        width: of input and output.
        layers: number of cross layers.
        rank: of the matrices; None is full rank.
    """

    def __init__(self, width: int, layers: int, rank: int | None = None) -> None:
        super().__init__()
        self.cross = nn.ModuleList(
            nn.Linear(width, width)
            if rank is None
            else nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width))
            for _ in range(layers)
        )

    def forward(self, first: Tensor) -> Tensor:
        """`[batch, width]` to the same."""
        crossed = first
        for layer in self.cross:
            crossed = torch.addcmul(crossed, first, layer(crossed).float())
        return crossed


class Dcnv2Layers(nn.Module):
    """All of a DCN-V2 but its tables.

    Args:
        spec: `cross_layers`, `cross_rank` and `cross_structure`; `top_widths` of the deep network.
        features: the input.
    """

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        self.vectors = FieldVectors(spec, features)
        width = self.vectors.width
        self.cross = CrossNetwork(width, spec.cross_layers, spec.cross_rank)
        self.deep = hidden_layers(spec, width, spec.top_widths)
        self.stacked = spec.cross_structure == "stacked"
        deep_width = spec.top_widths[-1] if spec.top_widths else width
        self.output = task_heads(spec, deep_width if self.stacked else width + deep_width, features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, tables, dim]` to logits as `models.registry.FAMILIES` says."""
        first = self.vectors(dense, pooled).flatten(1)
        crossed = self.cross(first)
        if self.stacked:
            return self.output(self.deep(crossed)).squeeze(1)
        return self.output(torch.cat([crossed, self.deep(first).float()], dim=1)).squeeze(1)
