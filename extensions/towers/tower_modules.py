"""Towers: groups of fields that are compressed to a few vectors of their own before all of them meet.

After DMT (Luo et al., MLSys 2024, arXiv 2403.00877). A tower belongs to one host of a cluster: its tables and its
module lie there, and only what the module gives has to cross to the other hosts (`shunter.extensions.towers.sptt`). The
paper does not print the modules in full; what is taken from its text and what is ours is said at each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.models.layers import CrossNetwork

Towers = tuple[tuple[int, ...], ...]


class DlrmTower(nn.Module):
    """The tower of DMT-DLRM: `c` vectors from all fields together, and `p` from each field.

    The first are one linear map of the fields side by side, the others one linear map that all fields of the tower
    share (that it is shared is our reading).

    Args:
        fields: Fields of the tower.
        width: Width of a field's vector.
        dim: Width of the vectors that go out.
        together: Vectors from all fields together: c.
        each: Vectors from each field: p.
    """

    def __init__(self, fields: int, width: int, *, dim: int, together: int, each: int) -> None:
        super().__init__()
        self.dim = dim
        self.together = nn.Linear(fields * width, together * dim) if together else None
        self.each = nn.Linear(width, each * dim) if each else None

    def forward(self, pooled: Tensor) -> Tensor:
        """`[batch, fields, width]` to `[batch, c + p * fields, dim]` in float32."""
        vectors = []
        if self.together is not None:
            vectors.append(self.together(pooled.flatten(1)).float().unflatten(1, (-1, self.dim)))
        if self.each is not None:
            vectors.append(self.each(pooled).float().flatten(1).unflatten(1, (-1, self.dim)))
        return torch.cat(vectors, dim=1)


class DcnTower(nn.Module):
    """The tower of DMT-DCN: a small cross network over the fields side by side, then a linear map to `c` vectors.

    Args:
        fields: Fields of the tower.
        width: Width of a field's vector.
        dim: Width of the vectors that go out.
        vectors: Vectors that go out: c.
        cross_layers: Layers of the cross network.
    """

    def __init__(self, fields: int, width: int, *, dim: int, vectors: int, cross_layers: int) -> None:
        super().__init__()
        self.dim = dim
        self.cross = CrossNetwork(fields * width, cross_layers)
        self.project = nn.Linear(fields * width, vectors * dim)

    def forward(self, pooled: Tensor) -> Tensor:
        """`[batch, fields, width]` to `[batch, c, dim]` in float32."""
        return self.project(self.cross(pooled.flatten(1))).float().unflatten(1, (-1, self.dim))


def split_evenly(positions: Sequence[int], parts: int) -> Towers:
    """Positions in their order, divided into parts of equal size or one more."""
    size, longer = divmod(len(positions), parts)
    starts = [part * size + min(part, longer) for part in range(parts + 1)]
    return tuple(tuple(positions[starts[part] : starts[part + 1]]) for part in range(parts))
