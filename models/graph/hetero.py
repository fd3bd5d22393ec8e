"""Relational convolution over users, items and what is known of them (Schlichtkrull et al., ESWC 2018)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from models.graph.model import INITIAL_DEVIATION, GraphModel, LayerCounts
from models.graph.propagation import Backend, NeighbourSum, neighbour_sum
from models.graph.spec import Graph, GraphSpec


@dataclass(frozen=True, eq=False)
class Relation:
    """One kind of edge in one direction: the mean over the neighbours that it leads to.

    Attributes:
        source: kind of node that the vectors come from.
        target: kind of node that they go to.
        sums: along the edges.
        shares: `[targets, 1]`, one over the number of neighbours.
    """

    source: str
    target: str
    sums: NeighbourSum
    shares: Tensor

    def __call__(self, hidden: dict[str, Tensor]) -> Tensor:
        """`[targets, dim]`, zero for a node without a neighbour."""
        return self.shares * self.sums(hidden[self.source])


class RelationalLayer(nn.Module):
    """`relu(W h(v) + sum over relations r of W_r mean over r's neighbours u of h(u))`, for every kind of node.

    Args:
        width: of the vectors.
        relations: how many there are.
    """

    def __init__(self, width: int, relations: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width)
        self.others = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(relations))

    def forward(self, hidden: dict[str, Tensor], relations: Sequence[Relation]) -> dict[str, Tensor]:
        """Vectors of each kind of node to those of the next layer."""
        mixed = {kind: self.own(vectors) for kind, vectors in hidden.items()}
        for relation, weight in zip(relations, self.others, strict=True):
            mixed[relation.target] = mixed[relation.target] + weight(relation(hidden))
        return {kind: torch.relu(vectors) for kind, vectors in mixed.items()}


class Hetero(GraphModel):
    """Users, items and the values of their attributes as nodes; every kind of edge has weights of its own.

    Each layer is "Modeling Relational Data with Graph Convolutional Networks", equation 2, with the number of a node's
    neighbours as its constant. A relation is a kind of edge and its direction: a user and an item, an item and one of
    its genres, and so on. The final vector is the mean of all layers, as in LightGCN, so that a node without any edge
    still has its own embedding.

    Args:
        spec: the architecture.
        graph: the edges, with attributes.
        device: where the model shall lie.
        backend: of the sums.
    """

    def __init__(
        self, spec: GraphSpec, graph: Graph, *, device: str | torch.device = "cpu", backend: Backend = "auto"
    ) -> None:
        super().__init__(spec, graph, device=device, backend=backend)
        width = spec.embedding_dim
        self.values = nn.ParameterList(INITIAL_DEVIATION * torch.randn(one.values, width) for one in graph.attributes)
        self.relations = [
            _relation(edges, device, backend) for both in _edges(graph) for edges in (both, both.reversed())
        ]
        self.layers = nn.ModuleList(RelationalLayer(width, len(self.relations)) for _ in range(spec.layers))
        self.to(device)

    @classmethod
    def layer_counts(cls, spec: GraphSpec, graph: Graph) -> LayerCounts:
        """Every relation in each layer: its mean, and the product with its weights."""
        edges = [edges for both in _edges(graph) for edges in (both, both.reversed())]
        nodes = graph.users + graph.items + sum(one.values for one in graph.attributes)
        targets = sum(one.target_count for one in edges)
        return LayerCounts(
            summed_rows=spec.layers * sum(len(one.sources) for one in edges),
            written_rows=spec.layers * (2 * nodes + 4 * targets),
            operators=spec.layers * 12 * (1 + len(edges)),
            embeddings=nodes,
            products=((nodes, 1), *((one.target_count, 1) for one in edges)) * spec.layers,
            biases=spec.layers,
        )

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Final vectors of all users and items."""
        hidden: dict[str, Tensor] = {"user": self.users, "item": self.items}
        hidden |= {_kind(position): vectors for position, vectors in enumerate(self.values)}
        users, items = self.users, self.items
        for layer in self.layers:
            hidden = layer(hidden, self.relations)
            users, items = users + hidden["user"], items + hidden["item"]
        layers = self.spec.layers + 1
        return users / layers, items / layers


@dataclass(frozen=True, eq=False)
class _Edges:
    source: str
    target: str
    sources: np.ndarray
    targets: np.ndarray
    source_count: int
    target_count: int

    def reversed(self) -> "_Edges":
        return _Edges(self.target, self.source, self.targets, self.sources, self.target_count, self.source_count)


def _edges(graph: Graph) -> Iterator[_Edges]:
    """The edges between users and items, and those of each attribute."""
    counts = {"user": graph.users, "item": graph.items}
    yield _Edges("user", "item", graph.edge_users, graph.edge_items, graph.users, graph.items)
    for position, one in enumerate(graph.attributes):
        yield _Edges(one.side, _kind(position), one.nodes, one.ids, counts[one.side], one.values)


def _relation(edges: _Edges, device: str | torch.device, backend: Backend) -> Relation:
    sums = neighbour_sum(
        edges.sources, edges.targets, edges.source_count, edges.target_count, device=device, backend=backend
    )
    degrees = np.bincount(edges.targets, minlength=edges.target_count)
    shares = torch.from_numpy(1 / np.maximum(degrees, 1)).float()[:, None].to(device)
    return Relation(edges.source, edges.target, sums, shares)


def _kind(attribute: int) -> str:
    return f"value {attribute}"
