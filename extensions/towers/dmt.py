"""DMT: interactions within each tower first, then among the towers (Luo et al., MLSys 2024, arXiv 2403.00877).

Interactions of all F fields with vectors of width N cost F^2 N per sample. Interactions among T towers with c vectors
of width D each cost (T c)^2 D. `tower_partitioner` chooses the fields of the towers.

A tower module compresses the vectors of a group of fields to few vectors. It belongs to one host of a cluster, which
stores its tables and its module. Only the module's output is sent to other hosts (`shunter.extensions.towers.sptt`).
The paper does not specify the modules in full; the docstring of each module names the project's own choices.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.layers import CrossNetwork, DotInteraction, bottom_mlp, scoring_mlp
from shunter.models.spec import Features, ModelSpec, nearest

Towers = tuple[tuple[int, ...], ...]
MOST_TOWERS = 4  # largest number of towers if the number is not given


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


@dataclass(frozen=True, kw_only=True)
class DmtSpec(ModelSpec):
    """Configuration of a DMT; `top_widths` are the widths of the MLP above the towers.

    Attributes:
        towers: Number of groups of fields, in the order of the data (`towers_of`).
        tower_fields: Names of the fields of each tower, instead of `towers`; stored in checkpoints.
        tower_kind: Module of a tower: `dlrm` for linear maps, `dcn` for a small cross network, which models the
            interactions of the tower's fields.
        tower_vectors: Number of vectors that a tower computes from all its fields together.
        tower_field_vectors: Number of additional vectors that a tower of kind `dlrm` computes from each of its fields.
        tower_dim: Width of the towers' output vectors; None for `embedding_dim`.
        tower_cross_layers: Number of cross layers of a tower of kind `dcn`.
    """

    family: ClassVar[str] = "dmt"

    towers: int | None = None
    tower_fields: tuple[tuple[str, ...], ...] = ()
    tower_kind: Literal["dlrm", "dcn"] = "dcn"
    tower_vectors: int = 2
    tower_field_vectors: int = 0
    tower_dim: int | None = None
    tower_cross_layers: int = 1

    @property
    def vector_width(self) -> int:
        """Width of a tower's output vectors."""
        return self.tower_dim or self.embedding_dim

    def vectors_of(self, fields: int) -> int:
        """Return the number of output vectors of a tower with this number of fields."""
        return self.tower_vectors + (fields * self.tower_field_vectors if self.tower_kind == "dlrm" else 0)

    def build_tower(self, fields: int) -> DlrmTower | DcnTower:
        """Build the module of a tower with this number of fields."""
        width, dim, vectors = self.embedding_dim, self.vector_width, self.tower_vectors
        if self.tower_kind == "dlrm":
            return DlrmTower(fields, width, dim=dim, together=vectors, each=self.tower_field_vectors)
        return DcnTower(fields, width, dim=dim, vectors=vectors, cross_layers=self.tower_cross_layers)


class DmtLayers(nn.Module):
    """All layers of a DMT except its tables: the towers, and the layers `above` them.

    Args:
        spec: Configuration of the towers and widths of the MLPs.
        features: Input features.

    Attributes:
        fields: Positions of the fields of each tower.
        towers: Module of each tower.
        above: Interaction among the towers.
    """

    order: Tensor

    def __init__(self, spec: DmtSpec, features: Features) -> None:
        super().__init__()
        self.fields = towers_of(spec, features)
        order = [position for tower in self.fields for position in tower]
        self.is_ordered = order == sorted(order)
        self.register_buffer("order", torch.tensor(order), persistent=False)
        self.towers = nn.ModuleList(spec.build_tower(len(tower)) for tower in self.fields)
        self.above = TowerInteraction(spec, features, sum(spec.vectors_of(len(tower)) for tower in self.fields))

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map dense features `[batch, dense features]` and looked-up embeddings `[batch, tables, dim]` to logits."""
        grouped = pooled if self.is_ordered else pooled.index_select(1, self.order)
        parts = grouped.split([len(tower) for tower in self.fields], dim=1)
        vectors = [tower(part) for tower, part in zip(self.towers, parts, strict=True)]
        return self.above(dense, torch.cat(vectors, dim=1))


class TowerInteraction(nn.Module):
    """Interaction of the vectors of all towers and of the dense features, as in a DLRM.

    The input of the top MLP is the dot product of each pair of vectors, and the vectors themselves. A DLRM uses only
    the dense vector besides the products. In a DMT all information about a field is in the vectors of its tower, so
    these vectors are inputs of the top MLP too.

    Args:
        spec: Widths of the MLPs and of a tower's vectors.
        features: Input features.
        vectors: Number of vectors of all towers together.
    """

    def __init__(self, spec: DmtSpec, features: Features, vectors: int) -> None:
        super().__init__()
        dense, dim = len(features.dense), spec.vector_width
        self.bottom = bottom_mlp(spec, dense, dim) if dense else None
        count = vectors + (1 if dense else 0)
        self.interaction = DotInteraction(count)
        self.top = scoring_mlp(spec, self.interaction.count + count * dim, features.outputs)

    def forward(self, dense: Tensor, vectors: Tensor) -> Tensor:
        """Map dense features `[batch, dense features]` and tower outputs `[batch, vectors, dim]` to logits."""
        if self.bottom is not None:
            vectors = torch.cat([self.bottom(dense).float().unsqueeze(1), vectors], dim=1)
        return self.top(torch.cat([vectors.flatten(1), self.interaction(vectors)], dim=1)).squeeze(1)


def towers_of(spec: DmtSpec, features: Features) -> Towers:
    """Return the positions of the fields in each tower, by the names in the spec or in the order of the data.

    Without names, each tower has the next fields in the order of the data; the sizes of towers differ by at most one.
    If the number of towers is not given either, it is four, or the number of fields if that is smaller.

    Raises:
        RequestError: There is no tower, more towers than fields, an unknown field, a field in no tower or in two, a
            tower without fields or vectors, or contradictory options.
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


def _check_options(spec: DmtSpec) -> None:
    if spec.tower_kind not in ("dlrm", "dcn"):
        raise RequestError(f"Unknown kind of tower {spec.tower_kind!r}: use 'dlrm' or 'dcn'.")
    least = 0 if spec.tower_kind == "dlrm" else 1
    if min(spec.tower_vectors - least, spec.tower_field_vectors, spec.tower_cross_layers) < 0:
        raise RequestError(
            f"A tower of kind {spec.tower_kind!r} cannot output {spec.tower_vectors} vectors, and "
            f"{spec.tower_field_vectors} for each field, after {spec.tower_cross_layers} cross layers: "
            "raise these numbers."
        )
    if not spec.vectors_of(fields=1):
        raise RequestError("The towers have no output: raise tower_vectors or tower_field_vectors.")
    if spec.tower_kind == "dcn" and spec.tower_field_vectors:
        raise RequestError("The option tower_field_vectors has no effect on towers of kind 'dcn': leave it out.")
    if spec.tower_dim is not None and spec.tower_dim < 1:
        raise RequestError(f"The width of a tower's vectors, tower_dim, is {spec.tower_dim}: use 1 or more.")


def _named_towers(spec: DmtSpec, names: Sequence[str]) -> Towers:
    """Return the towers that the spec names, as positions of fields."""
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
        raise RequestError(
            "A tower in tower_fields has no field: name at least one field for each tower, or fewer towers."
        )
    position = {name: number for number, name in enumerate(names)}
    return tuple(tuple(position[name] for name in tower) for tower in spec.tower_fields)


DMT = Family(
    spec=DmtSpec,
    layers=DmtLayers,
    ranges={"tower_kind": ("dlrm", "dcn"), "tower_vectors": (1, 2, 4)},
)
