"""Tower modules, each of which compresses the vectors of a group of fields to few vectors, before all fields interact.

After DMT (Luo et al., MLSys 2024, arXiv 2403.00877). A tower belongs to one host of a cluster, which stores its tables
and its module. Only the module's output is sent to other hosts (`shunter.extensions.towers.sptt`). The paper does not
specify the modules in full; the docstring of each module names the project's own choices.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.models.layers import CrossNetwork

Towers = tuple[tuple[int, ...], ...]


class DlrmTower(nn.Module):
    """Tower of DMT-DLRM: `c` vectors from all fields together, and `p` vectors from each field.

    The first `c` vectors are a linear map of the concatenated fields. The vectors of each field are a linear map of the
    field. All fields of the tower share this map, which is the project's interpretation of the paper.

    Args:
        fields: Number of fields of the tower.
        width: Width of a field's vector.
        dim: Width of the output vectors.
        together: Number of vectors from all fields together: c.
        each: Number of vectors from each field: p.
    """

    def __init__(self, fields: int, width: int, *, dim: int, together: int, each: int) -> None:
        super().__init__()
        self.dim = dim
        self.together = nn.Linear(fields * width, together * dim) if together else None
        self.each = nn.Linear(width, each * dim) if each else None

    def forward(self, pooled: Tensor) -> Tensor:
        """Map `[batch, fields, width]` to `[batch, c + p * fields, dim]` in float32."""
        vectors = []
        if self.together is not None:
            vectors.append(self.together(pooled.flatten(1)).float().unflatten(1, (-1, self.dim)))
        if self.each is not None:
            vectors.append(self.each(pooled).float().flatten(1).unflatten(1, (-1, self.dim)))
        return torch.cat(vectors, dim=1)


class DcnTower(nn.Module):
    """Tower of DMT-DCN: a small cross network over the concatenated fields, then a linear map to `c` vectors.

    Args:
        fields: Number of fields of the tower.
        width: Width of a field's vector.
        dim: Width of the output vectors.
        vectors: Number of output vectors: c.
        cross_layers: Number of layers of the cross network.
    """

    def __init__(self, fields: int, width: int, *, dim: int, vectors: int, cross_layers: int) -> None:
        super().__init__()
        self.dim = dim
        self.cross = CrossNetwork(fields * width, cross_layers)
        self.project = nn.Linear(fields * width, vectors * dim)

    def forward(self, pooled: Tensor) -> Tensor:
        """Map `[batch, fields, width]` to `[batch, c, dim]` in float32."""
        return self.project(self.cross(pooled.flatten(1))).float().unflatten(1, (-1, self.dim))


def split_evenly(positions: Sequence[int], parts: int) -> Towers:
    """Divide the positions, in order, into groups whose sizes differ by at most one."""
    size, longer = divmod(len(positions), parts)
    starts = [part * size + min(part, longer) for part in range(parts + 1)]
    return tuple(tuple(positions[starts[part] : starts[part + 1]]) for part in range(parts))
