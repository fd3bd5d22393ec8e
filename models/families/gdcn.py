"""GDCN: a cross network with a gate for the output of each layer (Wang et al., CIKM 2023, arXiv 2311.04635)."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.models.families.dcnv2 import CrossedLayers, Structure
from shunter.models.families.family import Family
from shunter.models.spec import Features, ModelSpec


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


def _layers(spec: GdcnSpec, features: Features) -> CrossedLayers:
    """Build all layers of GDCN above the tables."""
    cross = partial(GatedCrossNetwork, layers=spec.cross_layers)
    return CrossedLayers(spec, features, cross, spec.cross_structure)


GDCN = Family(
    spec=GdcnSpec,
    layers=_layers,
    ranges={"cross_layers": (1, 2, 3, 4), "cross_structure": ("parallel", "stacked")},
)
