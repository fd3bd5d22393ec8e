"""Cross networks parallel to or below a deep network: DCN-V2 and GDCN.

DCN-V2 is from Wang et al., WWW 2021, arXiv 2008.13535. GDCN has a gate for the output of each cross layer (Wang et al.,
CIKM 2023, arXiv 2311.04635).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from shunter.models.families.family import Family
from shunter.models.layers import CrossNetwork, FieldVectors, hidden_layers, task_heads
from shunter.models.spec import Features, ModelSpec

Structure = Literal["parallel", "stacked"]


@dataclass(frozen=True, kw_only=True)
class Dcnv2Spec(ModelSpec):
    """Configuration of DCN-V2; `top_widths` are those of the deep network.

    Attributes:
        cross_layers: Number of cross layers, each of which raises the degree of the interactions by one.
        cross_rank: Rank of each cross layer's matrix; None is full rank.
        cross_structure: Place of the deep network: parallel to the cross layers or on top of them.
    """

    family: ClassVar[str] = "dcnv2"

    cross_layers: int = 3
    cross_rank: int | None = None
    cross_structure: Structure = "parallel"


class CrossedLayers(nn.Module):
    """All layers above the tables of a cross network with a deep network.

    Args:
        spec: Widths of the deep network.
        features: Input features.
        build_cross: Builds the cross network for a width.
        structure: Place of the deep network; see `Dcnv2Spec`.
    """

    def __init__(
        self, spec: ModelSpec, features: Features, build_cross: Callable[[int], nn.Module], structure: Structure
    ) -> None:
        super().__init__()
        self.vectors = FieldVectors(spec, features)
        width = self.vectors.width
        self.cross = build_cross(width)
        self.deep = hidden_layers(spec, width, spec.top_widths)
        self.stacked = structure == "stacked"
        deep_width = spec.top_widths[-1] if spec.top_widths else width
        self.output = task_heads(spec, deep_width if self.stacked else width + deep_width, features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        first = self.vectors(dense, pooled).flatten(1)
        crossed = self.cross(first)
        if self.stacked:
            return self.output(self.deep(crossed)).squeeze(1)
        return self.output(torch.cat([crossed, self.deep(first).float()], dim=1)).squeeze(1)


DCNV2 = Family(
    spec=Dcnv2Spec,
    layers=lambda spec, features: CrossedLayers(
        spec, features, partial(CrossNetwork, layers=spec.cross_layers, rank=spec.cross_rank), spec.cross_structure
    ),
    ranges={"cross_layers": (1, 2, 3, 4), "cross_rank": (None, 16, 64), "cross_structure": ("parallel", "stacked")},
)


@dataclass(frozen=True, kw_only=True)
class GdcnSpec(ModelSpec):
    """Configuration of GDCN; `top_widths` are those of the deep network.

    Attributes:
        cross_layers: Number of gated cross layers, each of which raises the degree of the interactions by one.
        cross_structure: Place of the deep network: parallel to the cross layers (GDCN-P) or on top of them (GDCN-S).
    """

    family: ClassVar[str] = "gdcn"

    cross_layers: int = 3
    cross_structure: Structure = "parallel"


class GatedCrossNetwork(nn.Module):
    """Gated cross layers: `x_{l+1} = x_0 * (W_l x_l + b_l) * sigmoid(G_l x_l) + x_l`, all products elementwise.

    The gate is computed from the layer's input. It multiplies each number that the cross layer of DCN-V2 would add by a
    factor between 0 and 1. It has no bias.

    Args:
        width: Width of input and output.
        layers: Number of layers.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))

    def forward(self, first: Tensor) -> Tensor:
        """Map `[batch, width]` to the same shape in float32."""
        crossed = first
        for cross, gate in zip(self.cross, self.gates, strict=True):
            gated = first * torch.sigmoid(gate(crossed).float())
            crossed = torch.addcmul(crossed, gated, cross(crossed).float())
        return crossed


GDCN = Family(
    spec=GdcnSpec,
    layers=lambda spec, features: CrossedLayers(
        spec, features, partial(GatedCrossNetwork, layers=spec.cross_layers), spec.cross_structure
    ),
    ranges={"cross_layers": (1, 2, 3, 4), "cross_structure": ("parallel", "stacked")},
)
