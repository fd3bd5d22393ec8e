"""Two towers with a sampled softmax over the batch (Yi et al., RecSys 2019), with additional uniform negatives.

The correction of the sampling bias is from "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
Recommendations". The mixture of negatives is from "Mixed Negative Sampling for Learning Two-tower Neural Networks in
Recommendations" (Yang et al., WWW 2020).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from shunter.models.graph.losses import TOGETHER, corrected_softmax
from shunter.models.graph.model import INITIAL_DEVIATION, GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend, NeighbourMean
from shunter.models.graph.spec import Attribute, Graph, LayeredSpec, Range, Searched


@dataclass(frozen=True, kw_only=True)
class TwoTowerSpec(LayeredSpec):
    """Configuration of two towers; `layers` is the number of layers of each tower.

    Attributes:
        temperature: Divisor of the scores before the softmax; a lower value gives the hardest negatives more weight.
    """

    family: ClassVar[str] = "twotower"
    searched: ClassVar[Searched] = {
        **LayeredSpec.searched,
        "temperature": Range(0.1, 1.0),
        "learning_rate": Range(1e-3, 3e-2),
        "weight_decay": Range(1e-2, 1.0),  # large, because the loss of a sample contains thousands of pairs
        "negatives": (1, 2, 4),
    }
    # Best of eight short training runs on 700 users of MovieLens-1M, compared on a held-out part.
    learned_with: ClassVar[Mapping[str, Any]] = {"learning_rate": 0.005, "weight_decay": 0.1, "negatives": 1}

    layers: int = 1
    temperature: float = 1.0


class Tower(nn.Module):
    """Layers `h + W relu(h) + b` over a node's embedding plus the mean vector of each of its attributes.

    Args:
        spec: Architecture.
        nodes: Number of nodes.
        attributes: Attributes of the nodes.
        device: Device of the sums.
        backend: Library of the sums.
    """

    def __init__(
        self,
        spec: TwoTowerSpec,
        nodes: int,
        attributes: list[Attribute],
        *,
        device: str | torch.device,
        backend: Backend,
    ) -> None:
        super().__init__()
        width = spec.embedding_dim
        self.values = nn.ParameterList(INITIAL_DEVIATION * torch.randn(one.values, width) for one in attributes)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(spec.layers))
        self.means = [
            NeighbourMean(one.ids, one.nodes, one.values, nodes, device=device, backend=backend) for one in attributes
        ]

    def forward(self, own: Tensor) -> Tensor:
        """Map `[nodes, dim]` to the same shape."""
        hidden = own
        for mean, values in zip(self.means, self.values, strict=True):
            hidden = hidden + mean(values)
        for layer in self.layers:
            hidden = hidden + layer(torch.relu(hidden))
        return hidden


class TwoTower(GraphModel[TwoTowerSpec]):
    """A user tower and an item tower, which are independent until their vectors are multiplied.

    Vectors are not propagated between users and items, so the vector of a new user or item depends only on its
    attributes. The score is the dot product of the vectors over the temperature.
    """

    spec_class = TwoTowerSpec

    item_shares: Tensor

    def _build(self, device: str | torch.device, backend: Backend) -> None:
        spec, graph = self.spec, self.graph
        self.user_tower, self.item_tower = (
            Tower(spec, nodes, [one for one in graph.attributes if one.side == side], device=device, backend=backend)
            for side, nodes in (("user", graph.users), ("item", graph.items))
        )
        shares = torch.from_numpy(graph.item_degrees() / graph.edges).float()
        self.register_buffer("item_shares", shares, persistent=False)

    @classmethod
    def layer_counts(cls, spec: TwoTowerSpec, graph: Graph) -> LayerCounts:
        """Count the operations of both towers over all nodes of the graph."""
        nodes = graph.users + graph.items
        values = sum(attribute.values for attribute in graph.attributes)
        return LayerCounts(
            summed_rows=sum(len(attribute.ids) for attribute in graph.attributes),
            written_rows=(2 * spec.layers + len(graph.attributes)) * nodes,
            operators=24 * spec.layers + 12 * len(graph.attributes),
            embeddings=nodes + values,
            products=((graph.users, 1), (graph.items, 1)) * spec.layers,
            biases=2 * spec.layers,
        )

    @classmethod
    def scored_items(cls, negatives: int) -> int:
        """Return the number of items scored for each sample: the positives and negatives of `TOGETHER` samples."""
        return TOGETHER * (1 + negatives)

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return the final vectors of all users and items."""
        return self.user_tower(self.users), self.item_tower(self.items)

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Return the softmax loss over the positives and negatives of a batch, corrected for the sampling bias."""
        user_vectors, item_vectors = self(users, torch.cat([positives, negatives.flatten()]))
        vectors = user_vectors / self.spec.temperature
        return corrected_softmax(vectors, positives, negatives, item_vectors, self.item_shares)
