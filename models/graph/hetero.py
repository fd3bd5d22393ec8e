"""Relational convolution over users, items and their attributes (Schlichtkrull et al., ESWC 2018)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from shunter.models.graph.model import INITIAL_DEVIATION, GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend, NeighbourMean
from shunter.models.graph.spec import Graph, LayeredSpec


class Relation(NamedTuple):
    """Edges of one kind in one direction: kinds of the source and target nodes, and the mean over neighbours."""

    source: str
    target: str
    mean: NeighbourMean


class RelationalLayer(nn.Module):
    """`relu(W h(v) + sum over relations r of W_r mean over r's neighbours u of h(u))`, for every kind of node.

    Args:
        width: Width of the vectors.
        relations: Number of relations.
    """

    def __init__(self, width: int, relations: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width)
        self.others = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(relations))

    def forward(self, hidden: dict[str, Tensor], relations: Sequence[Relation]) -> dict[str, Tensor]:
        """Map the vectors of each kind of node to those of the next layer."""
        mixed = {kind: self.own(vectors) for kind, vectors in hidden.items()}
        for relation, weight in zip(relations, self.others, strict=True):
            mixed[relation.target] = mixed[relation.target] + weight(relation.mean(hidden[relation.source]))
        return {kind: torch.relu(vectors) for kind, vectors in mixed.items()}


@dataclass(frozen=True, kw_only=True)
class HeteroSpec(LayeredSpec):
    """Configuration of a relational convolution."""

    family: ClassVar[str] = "hetero"


class Hetero(GraphModel[HeteroSpec]):
    """Users, items and attribute values as nodes; every kind of edge has its own weights.

    Each layer is equation 2 of "Modeling Relational Data with Graph Convolutional Networks", with a node's number of
    neighbours as its constant. A relation is a kind of edge with a direction: from user to item, from item to genre,
    and so on. The final vector is the mean of all layers, as in LightGCN, so that a node without edges still has its
    own embedding.
    """

    spec_class = HeteroSpec

    def _build(self, device: str | torch.device, backend: Backend) -> None:
        spec, graph = self.spec, self.graph
        width = spec.embedding_dim
        self.values = nn.ParameterList(
            INITIAL_DEVIATION * torch.randn(attribute.values, width) for attribute in graph.attributes
        )
        self.relations = [
            Relation(edges.source, edges.target, NeighbourMean(*edges[2:], device=device, backend=backend))
            for both in _edges(graph)
            for edges in (both, both.reversed())
        ]
        self.layers = nn.ModuleList(RelationalLayer(width, len(self.relations)) for _ in range(spec.layers))

    @classmethod
    def layer_counts(cls, spec: HeteroSpec, graph: Graph) -> LayerCounts:
        """Count every relation in each layer: its mean, and the product with its weights."""
        edges = [edges for both in _edges(graph) for edges in (both, both.reversed())]
        nodes = graph.users + graph.items + sum(attribute.values for attribute in graph.attributes)
        targets = sum(relation.target_count for relation in edges)
        return LayerCounts(
            summed_rows=spec.layers * sum(len(relation.sources) for relation in edges),
            written_rows=spec.layers * (2 * nodes + 4 * targets),
            operators=spec.layers * 12 * (1 + len(edges)),
            embeddings=nodes,
            products=((nodes, 1), *((relation.target_count, 1) for relation in edges)) * spec.layers,
            biases=spec.layers,
        )

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return the final vectors of all users and items."""
        hidden: dict[str, Tensor] = {"user": self.users, "item": self.items}
        hidden |= {_kind(position): vectors for position, vectors in enumerate(self.values)}
        users, items = self.users, self.items
        for layer in self.layers:
            hidden = layer(hidden, self.relations)
            users, items = users + hidden["user"], items + hidden["item"]
        layers = self.spec.layers + 1
        return users / layers, items / layers


class _Edges(NamedTuple):
    source: str
    target: str
    sources: np.ndarray
    targets: np.ndarray
    source_count: int
    target_count: int

    def reversed(self) -> "_Edges":
        return _Edges(self.target, self.source, self.targets, self.sources, self.target_count, self.source_count)


def _edges(graph: Graph) -> Iterator[_Edges]:
    """Yield one `_Edges` for all interactions of users with items, and one for each attribute."""
    counts = {"user": graph.users, "item": graph.items}
    yield _Edges("user", "item", graph.edge_users, graph.edge_items, graph.users, graph.items)
    for position, attribute in enumerate(graph.attributes):
        yield _Edges(
            attribute.side, _kind(position), attribute.nodes, attribute.ids, counts[attribute.side], attribute.values
        )


def _kind(attribute: int) -> str:
    return f"value {attribute}"
