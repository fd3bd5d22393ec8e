"""UltraGCN (Mao et al., "UltraGCN: Ultra Simplification of Graph Convolutional Networks", CIKM 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from shunter.models.graph.losses import products
from shunter.models.graph.model import GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend, co_counts
from shunter.models.graph.spec import Graph, Range, Searched, VectorSpec


@dataclass(frozen=True, kw_only=True)
class UltraGcnSpec(VectorSpec):
    """Configuration of UltraGCN.

    Attributes:
        neighbours: Number of nearest items of each item, which are additional positives for the item's users.
        neighbour_weight: Weight of these in the loss, called lambda in the paper.
        negative_weight: Weight of all negatives of a positive together.
    """

    family: ClassVar[str] = "ultragcn"
    searched: ClassVar[Searched] = {
        **VectorSpec.searched,
        "neighbours": (5, 10, 20),
        "neighbour_weight": Range(1e-4, 10.0),
        "negative_weight": Range(1.0, 300.0),
        "negatives": (32, 64, 128),
        "learning_rate": Range(0.002, 0.05),
        "weight_decay": Range(1e-7, 1e-3),
    }
    learned_with: ClassVar[Mapping[str, Any]] = {"learning_rate": 0.01, "weight_decay": 1e-6, "negatives": 64}

    neighbours: int = 10
    neighbour_weight: float = 0.01
    negative_weight: float = 10.0


class UltraGcn(GraphModel[UltraGcnSpec]):
    """Embeddings without layers, trained towards the limit of infinitely many layers of LightGCN.

    The cross entropy of each edge and each negative has the weight `1 / d_u * sqrt((d_u + 1) / (d_i + 1))` (equation 8;
    the additional constants are 0 here, and 1e-7 in the published settings of MovieLens-1M). Each of an item's nearest
    neighbours j has the weight `G_ij / (g_i - G_ii) * sqrt(g_i / g_j)`, with co-occurrences G and their sums g
    (equation 13, without the item itself).
    """

    spec_class = UltraGcnSpec

    user_shares: Tensor
    item_shares: Tensor
    nearest: Tensor
    closeness: Tensor

    def _build(self, device: str | torch.device, backend: Backend) -> None:
        spec, graph = self.spec, self.graph
        user_degrees, item_degrees = (
            torch.from_numpy(degrees).float() for degrees in (graph.user_degrees(), graph.item_degrees())
        )
        nearest, closeness = _nearest(graph, spec.neighbours, backend)
        buffers = {
            "user_shares": (user_degrees + 1).sqrt() / user_degrees.clamp(min=1),
            "item_shares": (item_degrees + 1).rsqrt(),
            "nearest": nearest,
            "closeness": closeness,
        }
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)

    @classmethod
    def layer_counts(cls, spec: UltraGcnSpec, graph: Graph) -> LayerCounts:
        """Return the counts of a step: embeddings and loss, since the model has no layers."""
        return LayerCounts(summed_rows=0, written_rows=0, operators=30, embeddings=graph.users + graph.items)

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return the embeddings of users and items."""
        return self.users, self.items

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Return the mean over the samples of equation 14: the edge and its negatives, and the item's neighbours."""
        vectors, own = self.users.index_select(0, users), self.user_shares[users]
        positive = (vectors * self.items.index_select(0, positives)).sum(1)
        negative = products(vectors, self.items, negatives)
        near = products(vectors, self.items, self.nearest[positives])
        softplus = nn.functional.softplus
        edges = own * self.item_shares[positives] * softplus(-positive)
        others = own * (self.item_shares[negatives] * softplus(negative)).mean(1)
        neighbours = (self.closeness[positives] * softplus(-near)).sum(1)
        spec = self.spec
        return (edges + spec.negative_weight * others + spec.neighbour_weight * neighbours).mean()


def _nearest(graph: Graph, count: int, backend: Backend) -> tuple[Tensor, Tensor]:
    """Return the nearest items of each item and their weights, `[items, count]` each; missing ones have weight 0."""
    degrees = torch.from_numpy(graph.item_degrees()).float()
    histories = torch.from_numpy(graph.user_degrees()).float()
    edge_items = torch.from_numpy(graph.edge_items)
    sums = torch.zeros(graph.items).index_add(0, edge_items, histories[torch.from_numpy(graph.edge_users)])
    count = min(count, graph.items)
    found = []
    for some, counts in co_counts(graph, backend=backend):
        weights = (counts * sums.clamp(min=1).rsqrt()[:, None]).T  # `[some, items]`
        weights[torch.arange(len(some)), some] = 0.0
        scale = sums[some].sqrt() / (sums[some] - degrees[some]).clamp(min=1)
        closeness, items = (weights * scale[:, None]).topk(count)
        found.append((items, closeness))
    items, closeness = (torch.cat(parts) for parts in zip(*found, strict=True))
    return items, closeness
