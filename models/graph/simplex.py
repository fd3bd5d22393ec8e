"""SimpleX (Mao et al., "SimpleX: A Simple and Strong Baseline for Collaborative Filtering", CIKM 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from shunter.models.graph.losses import cosine_contrastive, products
from shunter.models.graph.model import GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend, NeighbourMean
from shunter.models.graph.spec import Graph, Range, Searched, VectorSpec


@dataclass(frozen=True, kw_only=True)
class SimplexSpec(VectorSpec):
    """Configuration of SimpleX.

    Attributes:
        own_share: Share of a user's own embedding in the user's vector, from 0 to 1; the rest is the mean of their
            items.
        margin: Cosine below which a negative adds no loss.
        negative_weight: Weight of all negatives of a positive together, relative to 1 for the positive.
    """

    family: ClassVar[str] = "simplex"
    searched: ClassVar[Searched] = {
        **VectorSpec.searched,
        "own_share": (0.1, 0.25, 0.5, 0.75),
        "margin": (0.0, 0.2, 0.4, 0.6),
        "negative_weight": Range(1.0, 100.0),
        "negatives": (32, 64, 128),
        "learning_rate": Range(0.002, 0.05),
        "weight_decay": Range(1e-9, 1e-5),
    }
    learned_with: ClassVar[Mapping[str, Any]] = {"learning_rate": 0.03, "weight_decay": 1e-8, "negatives": 64}

    own_share: float = 0.25
    margin: float = 0.2
    negative_weight: float = 10.0


class Simplex(GraphModel[SimplexSpec]):
    """User vectors from an own embedding and the mean of the user's items, item embeddings, and cosines as scores.

    The user vector is `g * e_u + (1 - g) * V * mean of e_i over the items that u chose` (section 3.2, average pooling),
    trained with the cosine contrastive loss (section 3.1). A user without items only has their own embedding.
    """

    spec_class = SimplexSpec

    def _build(self, device: str | torch.device, backend: Backend) -> None:
        spec, graph = self.spec, self.graph
        self.mix = nn.Linear(spec.embedding_dim, spec.embedding_dim, bias=False)
        self.mean_item = NeighbourMean(
            graph.edge_items, graph.edge_users, graph.items, graph.users, device=device, backend=backend
        )

    @classmethod
    def layer_counts(cls, spec: SimplexSpec, graph: Graph) -> LayerCounts:
        """Count the operations of a step, which sums along each edge once, from item to user."""
        return LayerCounts(
            summed_rows=graph.edges,
            written_rows=5 * graph.users + 2 * graph.items,
            operators=30,
            embeddings=graph.users + graph.items,
            products=((graph.users, 1),),
        )

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return the final vectors of all users and items, normalised to length one."""
        history = self.mix(self.mean_item(self.items))
        users = self.spec.own_share * self.users + (1 - self.spec.own_share) * history
        return nn.functional.normalize(users), nn.functional.normalize(self.items)

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Return the cosine contrastive loss of a batch."""
        user_vectors, items = self.all_vectors()
        user_vectors = user_vectors.index_select(0, users)
        positive = (user_vectors * items.index_select(0, positives)).sum(1)
        negative = products(user_vectors, items, negatives)
        return cosine_contrastive(
            positive, negative, margin=self.spec.margin, negative_weight=self.spec.negative_weight
        )
