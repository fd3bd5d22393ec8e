"""Two towers learned by a sampled softmax over the batch (Yi et al., RecSys 2019), with uniform negatives mixed in.

The correction is that of "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations"; the mixture
that of "Mixed Negative Sampling for Learning Two-tower Neural Networks in Recommendations" (Yang et al., WWW 2020).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from shunter.models.graph.losses import TOGETHER, corrected_softmax
from shunter.models.graph.model import INITIAL_DEVIATION, GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend, NeighbourSum, neighbour_sum
from shunter.models.graph.spec import Attribute, Graph, LayeredSpec, Range, Searched


@dataclass(frozen=True, kw_only=True)
class TwoTowerSpec(LayeredSpec):
    """Two towers; `layers` are those of each.

    Attributes:
        temperature: What scores are divided by before the softmax: the lower, the more the hardest negatives count.
    """

    family: ClassVar[str] = "twotower"
    searched: ClassVar[Searched] = {
        **LayeredSpec.searched,
        "temperature": Range(0.1, 1.0),
        "learning_rate": Range(1e-3, 3e-2),
        "weight_decay": Range(1e-2, 1.0),  # the loss of a sample is that of thousands of pairs
        "negatives": (1, 2, 4),
    }
    # Of eight short trainings on 700 users of MovieLens-1M, judged on a part that was held out.
    learned_with: ClassVar[Mapping[str, Any]] = {"learning_rate": 0.005, "weight_decay": 0.1, "negatives": 1}

    layers: int = 1
    temperature: float = 1.0


class Tower(nn.Module):
    """`h + W relu(h) + b`, layer by layer, of the sum of a node's own embedding and the mean of each of its attributes.

    Args:
        spec: Architecture.
        nodes: Number of nodes.
        attributes: What is known of them.
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
        self.means = [_Mean(one, nodes, device, backend) for one in attributes]

    def forward(self, own: Tensor) -> Tensor:
        """Map `[nodes, dim]` to the same shape."""
        hidden = own
        for mean, values in zip(self.means, self.values, strict=True):
            hidden = hidden + mean(values)
        for layer in self.layers:
            hidden = hidden + layer(torch.relu(hidden))
        return hidden


class _Mean:
    """The mean over the values of an attribute, for each node; zero for one without any."""

    def __init__(self, attribute: Attribute, nodes: int, device: str | torch.device, backend: Backend) -> None:
        self.sums: NeighbourSum = neighbour_sum(
            attribute.ids, attribute.nodes, attribute.values, nodes, device=device, backend=backend
        )
        degrees = np.bincount(attribute.nodes, minlength=nodes)
        self.shares = torch.from_numpy(1 / np.maximum(degrees, 1)).float()[:, None].to(device)

    def __call__(self, values: Tensor) -> Tensor:
        return self.shares * self.sums(values)


class TwoTower(GraphModel[TwoTowerSpec]):
    """A user tower and an item tower, which know nothing of each other until their vectors are multiplied.

    No vector passes along the edges between users and items, so that the vector of a new user or item follows from its
    attributes alone. A user's score of an item is the product of their vectors over the temperature.

    Args:
        spec: Architecture.
        graph: Edges, with attributes.
        device: Device where the model shall lie.
        backend: Library of the means of attributes.
    """

    spec_class = TwoTowerSpec

    item_shares: Tensor

    def __init__(
        self, spec: TwoTowerSpec, graph: Graph, *, device: str | torch.device = "cpu", backend: Backend = "auto"
    ) -> None:
        super().__init__(spec, graph, device=device, backend=backend)
        self.user_tower, self.item_tower = (
            Tower(spec, nodes, [one for one in graph.attributes if one.side == side], device=device, backend=backend)
            for side, nodes in (("user", graph.users), ("item", graph.items))
        )
        shares = torch.from_numpy(graph.item_degrees() / graph.edges).float()
        self.register_buffer("item_shares", shares, persistent=False)
        self.to(device)

    @classmethod
    def layer_counts(cls, spec: TwoTowerSpec, graph: Graph) -> LayerCounts:
        """Both towers over all nodes."""
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
        """All items of those that are taken together."""
        return TOGETHER * (1 + negatives)

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Final vectors of all users and items."""
        return self.user_tower(self.users), self.item_tower(self.items)

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """The softmax over the items of a batch and their negatives, each set right by how often it is drawn."""
        user_vectors, item_vectors = self(users, torch.cat([positives, negatives.flatten()]))
        vectors = user_vectors / self.spec.temperature
        return corrected_softmax(vectors, positives, negatives, item_vectors, self.item_shares)
