"""LightGCN (He et al., "LightGCN: Simplifying and Powering Graph Convolution Network", SIGIR 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from shunter.models.graph.model import GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend, neighbour_sum
from shunter.models.graph.spec import Graph, LayeredSpec


@dataclass(frozen=True, kw_only=True)
class LightGcnSpec(LayeredSpec):
    """Configuration of LightGCN."""

    family: ClassVar[str] = "lightgcn"


class LightGcn(GraphModel[LightGcnSpec]):
    """Embeddings that are propagated along the edges, without other parameters.

    Layer k + 1 of a node is the sum over its neighbours of `e_k / sqrt(degree * degree of the neighbour)` (section
    3.1.1, equation 3). The final vector is the mean of all layers, including layer 0, the node's own embedding (section
    3.1.2). For a node without edges all layers after 0 are zero.

    Args:
        spec: Architecture.
        graph: Edges.
        device: Device of the model.
        backend: Library of the sums.
    """

    spec_class = LightGcnSpec

    user_scale: Tensor
    item_scale: Tensor

    def __init__(
        self, spec: LightGcnSpec, graph: Graph, *, device: str | torch.device = "cpu", backend: Backend = "auto"
    ) -> None:
        super().__init__(spec, graph, device=device, backend=backend)
        users, items = graph.edge_users, graph.edge_items
        self.to_users = neighbour_sum(items, users, graph.items, graph.users, device=device, backend=backend)
        self.to_items = neighbour_sum(users, items, graph.users, graph.items, device=device, backend=backend)
        for name, degrees in (("user_scale", graph.user_degrees()), ("item_scale", graph.item_degrees())):
            scale = torch.from_numpy(degrees).clamp(min=1).float().rsqrt()[:, None]
            self.register_buffer(name, scale, persistent=False)
        self.to(device)

    @classmethod
    def layer_counts(cls, spec: LightGcnSpec, graph: Graph) -> LayerCounts:
        """Count the operations: each layer sums along every edge in both directions, with scaling before and after."""
        nodes = graph.users + graph.items
        return LayerCounts(
            summed_rows=spec.layers * 2 * graph.edges,
            written_rows=spec.layers * 4 * nodes,
            operators=spec.layers * 16,
            embeddings=nodes,
        )

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return the final vectors of all users and items."""
        users, items = self.users, self.items
        user_sum, item_sum = users, items
        for _ in range(self.spec.layers):
            users, items = self.layer(users, items)
            user_sum, item_sum = user_sum + users, item_sum + items
        layers = self.spec.layers + 1
        return user_sum / layers, item_sum / layers

    def layer(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Map the vectors of users and items to those of the next layer."""
        return (
            self.user_scale * self.to_users(self.item_scale * items),
            self.item_scale * self.to_items(self.user_scale * users),
        )
