"""DCN-V2: a cross network parallel to or below a deep network (Wang et al., WWW 2021, arXiv 2008.13535)."""

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


def _layers(spec: Dcnv2Spec, features: Features) -> CrossedLayers:
    """Build all layers of DCN-V2 above the tables."""
    cross = partial(CrossNetwork, layers=spec.cross_layers, rank=spec.cross_rank)
    return CrossedLayers(spec, features, cross, spec.cross_structure)


DCNV2 = Family(
    spec=Dcnv2Spec,
    layers=_layers,
    ranges={"cross_layers": (1, 2, 3, 4), "cross_rank": (None, 16, 64), "cross_structure": ("parallel", "stacked")},
)
