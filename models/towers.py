"""Towers: groups of fields that are compressed to a few vectors of their own before all of them meet.

After DMT (Luo et al., MLSys 2024, arXiv 2403.00877). A tower belongs to one host of a cluster: its tables and its
module lie there, and only what the module gives has to cross to the other hosts (`engine.parallel.towers`). The
paper does not print the modules in full; what is taken from its text and what is ours is said at each.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.families.dcnv2 import CrossNetwork
from models.spec import Features, ModelSpec, nearest
from shunter.errors import RequestError

MOST_TOWERS = 4  # where their number is not given

Towers = tuple[tuple[int, ...], ...]


class DlrmTower(nn.Module):
    """The tower of DMT-DLRM: `c` vectors from all fields together, and `p` from each field.

    The first are one linear map of the fields side by side, the others one linear map that all fields of the tower
    share (that it is shared is our reading).

    Args:
        spec: `embedding_dim`; `tower_vectors` is c, `tower_field_vectors` is p, `tower_dim` their width.
        fields: of the tower.
    """

    def __init__(self, spec: ModelSpec, fields: int) -> None:
        super().__init__()
        self.dim = tower_dim(spec)
        together, each = spec.tower_vectors, spec.tower_field_vectors
        self.together = nn.Linear(fields * spec.embedding_dim, together * self.dim) if together else None
        self.each = nn.Linear(spec.embedding_dim, each * self.dim) if each else None

    def forward(self, pooled: Tensor) -> Tensor:
        """`[batch, fields, embedding_dim]` to `[batch, c + p * fields, dim]` in float32."""
        vectors = []
        if self.together is not None:
            vectors.append(self.together(pooled.flatten(1)).float().unflatten(1, (-1, self.dim)))
        if self.each is not None:
            vectors.append(self.each(pooled).float().flatten(1).unflatten(1, (-1, self.dim)))
        return torch.cat(vectors, dim=1)


class DcnTower(nn.Module):
    """The tower of DMT-DCN: a small cross network over the fields side by side, then a linear map to `c` vectors.

    Args:
        spec: `embedding_dim`, `tower_cross_layers`, `tower_vectors` and `tower_dim`.
        fields: of the tower.
    """

    def __init__(self, spec: ModelSpec, fields: int) -> None:
        super().__init__()
        width = fields * spec.embedding_dim
        self.dim = tower_dim(spec)
        self.cross = CrossNetwork(width, spec.tower_cross_layers)
        self.project = nn.Linear(width, spec.tower_vectors * self.dim)

    def forward(self, pooled: Tensor) -> Tensor:
        """`[batch, fields, embedding_dim]` to `[batch, c, dim]` in float32."""
        return self.project(self.cross(pooled.flatten(1))).float().unflatten(1, (-1, self.dim))


def build_tower(spec: ModelSpec, fields: int) -> DlrmTower | DcnTower:
    """The module of one tower, of the kind that the spec names."""
    return DlrmTower(spec, fields) if spec.tower_kind == "dlrm" else DcnTower(spec, fields)


def tower_dim(spec: ModelSpec) -> int:
    """Width of the vectors that a tower gives."""
    return spec.tower_dim or spec.embedding_dim


def tower_vectors(spec: ModelSpec, fields: int) -> int:
    """Vectors that a tower of so many fields gives."""
    return spec.tower_vectors + (fields * spec.tower_field_vectors if spec.tower_kind == "dlrm" else 0)


def compression_ratio(spec: ModelSpec, fields: int) -> float:
    """How much less a tower sends to other hosts than its embeddings: CR = F_h N / ((c + p F_h) D)."""
    return fields * spec.embedding_dim / (tower_vectors(spec, fields) * tower_dim(spec))


def towers_of(spec: ModelSpec, features: Features) -> Towers:
    """The positions of the fields in each tower: as the spec names them, else in the order of the data.

    In the order of the data each tower takes the next fields, as many as any other, or one more. Where their number is
    not given either, there are four, or as many as there are fields if these are fewer.

    Raises:
        RequestError: there is no tower or more than fields, a field is unknown or in no or two towers, a tower is
            empty or gives nothing, or the options contradict each other.
    """
    _check_options(spec)
    names = [field.name for field in features.categorical]
    if spec.tower_fields:
        return _named_towers(spec, names)
    count = min(MOST_TOWERS, len(names)) if spec.towers is None else spec.towers
    if not 1 <= count <= len(names):
        raise RequestError(
            f"The {len(names)} categorical fields cannot be divided into {count} towers: use 1 to {len(names)}."
        )
    return split_evenly(range(len(names)), count)


def split_evenly(positions: Sequence[int], parts: int) -> Towers:
    """Positions in their order, divided into parts of equal size or one more."""
    size, longer = divmod(len(positions), parts)
    starts = [part * size + min(part, longer) for part in range(parts + 1)]
    return tuple(tuple(positions[starts[part] : starts[part + 1]]) for part in range(parts))


def _check_options(spec: ModelSpec) -> None:
    if spec.tower_kind not in ("dlrm", "dcn"):
        raise RequestError(f"Unknown kind of tower {spec.tower_kind!r}: use 'dlrm' or 'dcn'.")
    least = 0 if spec.tower_kind == "dlrm" else 1
    if min(spec.tower_vectors - least, spec.tower_field_vectors, spec.tower_cross_layers) < 0:
        raise RequestError(
            f"A tower of kind {spec.tower_kind!r} cannot give {spec.tower_vectors} vectors and "
            f"{spec.tower_field_vectors} of each field after {spec.tower_cross_layers} cross layers: raise them."
        )
    if not tower_vectors(spec, fields=1):
        raise RequestError("The towers would give nothing: raise tower_vectors or tower_field_vectors.")
    if spec.tower_kind == "dcn" and spec.tower_field_vectors:
        raise RequestError("The option tower_field_vectors does nothing in towers of kind 'dcn': leave it out.")
    if spec.tower_dim is not None and spec.tower_dim < 1:
        raise RequestError(f"The width {spec.tower_dim} of a tower's vectors is no width: use 1 or more.")


def _named_towers(spec: ModelSpec, names: Sequence[str]) -> Towers:
    """The partition that the spec holds, as positions."""
    if spec.towers not in (None, len(spec.tower_fields)):
        raise RequestError(
            f"The option towers = {spec.towers} contradicts tower_fields, which names {len(spec.tower_fields)}: "
            f"leave one of them out."
        )
    seen = Counter(name for tower in spec.tower_fields for name in tower)
    for name, times in seen.items():
        if name not in names:
            raise RequestError(f"The option tower_fields names an unknown field {name!r}: {nearest(name, names)}.")
        if times > 1:
            raise RequestError(f"The field {name!r} is in {times} towers: name it once in tower_fields.")
    missing = [name for name in names if name not in seen]
    if missing:
        raise RequestError(f"The field {missing[0]!r} is in no tower: name every field once in tower_fields.")
    if not all(spec.tower_fields):
        raise RequestError("A tower of tower_fields has no field: name at least one in each, or fewer towers.")
    position = {name: number for number, name in enumerate(names)}
    return tuple(tuple(position[name] for name in tower) for tower in spec.tower_fields)
