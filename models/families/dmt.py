"""DMT: a hierarchy of interactions, within each tower first and then among the towers (Luo et al., MLSys 2024).

The interaction of all fields with all others costs F^2 N for each sample; that among T towers of c vectors each costs
(T c)^2 D. See `models.towers` for the modules, `models.tower_partitioner` for which fields belong together.
"""

import torch
from torch import Tensor, nn

from models.layers import DotInteraction, mlp, scoring_mlp
from models.spec import Features, ModelSpec
from models.towers import build_tower, tower_dim, tower_vectors, towers_of


class DmtLayers(nn.Module):
    """All of a DMT but its tables: the towers, and `above`, what comes after them.

    Args:
        spec: the towers and their modules; widths of the MLPs.
        features: the input.

    Attributes:
        fields: positions of the fields of each tower.
        towers: the module of each tower.
        above: the interaction among the towers.
    """

    order: Tensor

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        self.fields = towers_of(spec, features)
        order = [position for tower in self.fields for position in tower]
        self.is_ordered = order == sorted(order)
        self.register_buffer("order", torch.tensor(order), persistent=False)
        self.towers = nn.ModuleList(build_tower(spec, len(tower)) for tower in self.fields)
        self.above = TowerInteraction(spec, features, sum(tower_vectors(spec, len(tower)) for tower in self.fields))

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, tables, dim]` to logits as `models.registry.FAMILIES` says."""
        grouped = pooled if self.is_ordered else pooled.index_select(1, self.order)
        parts = grouped.split([len(tower) for tower in self.fields], dim=1)
        vectors = [tower(part) for tower, part in zip(self.towers, parts, strict=True)]
        return self.above(dense, torch.cat(vectors, dim=1))


class TowerInteraction(nn.Module):
    """What all towers and the dense features give together, by the interaction of a DLRM.

    The top MLP sees the dot product of each pair of vectors, and beside them the vectors themselves: a DLRM has the
    dense one beside its products; as all that is known of a field has passed through its tower, we add the few others.

    Args:
        spec: `bottom_widths`, `top_widths` and the width of a tower's vectors.
        features: the input.
        vectors: of all towers together.
    """

    def __init__(self, spec: ModelSpec, features: Features, vectors: int) -> None:
        super().__init__()
        dense, dim = len(features.dense), tower_dim(spec)
        self.bottom = mlp((dense, *spec.bottom_widths, dim), last_relu=True) if dense else None
        count = vectors + (1 if dense else 0)
        self.interaction = DotInteraction(count)
        self.top = scoring_mlp(spec, self.interaction.count + count * dim, features.outputs)

    def forward(self, dense: Tensor, vectors: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, vectors, dim]` of the towers to logits, as `DmtLayers`."""
        if self.bottom is not None:
            vectors = torch.cat([self.bottom(dense).float().unsqueeze(1), vectors], dim=1)
        return self.top(torch.cat([vectors.flatten(1), self.interaction(vectors)], dim=1)).squeeze(1)
