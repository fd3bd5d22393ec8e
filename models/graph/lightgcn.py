"""LightGCN and XSimGCL, which propagate embeddings along the edges.

He et al., "LightGCN: Simplifying and Powering Graph Convolution Network", SIGIR 2020.
Yu et al., "XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation", TKDE 2023.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.models.graph.losses import bpr, info_nce, products
from shunter.models.graph.model import GraphModel, LayerCounts
from shunter.models.graph.propagation import Backend, neighbour_sum
from shunter.models.graph.spec import Graph, LayeredSpec, Range, Searched


@dataclass(frozen=True, kw_only=True)
class LightGcnSpec(LayeredSpec):
    """Configuration of LightGCN."""

    family: ClassVar[str] = "lightgcn"


class LightGcn(GraphModel[LightGcnSpec]):
    """Embeddings that are propagated along the edges, without other parameters.

    Layer k + 1 of a node is the sum over its neighbours of `e_k / sqrt(degree * degree of the neighbour)` (section
    3.1.1, equation 3). The final vector is the mean of all layers, including layer 0, the node's own embedding (section
    3.1.2). For a node without edges all layers after 0 are zero.
    """

    spec_class = LightGcnSpec

    user_scale: Tensor
    item_scale: Tensor

    def _build(self, device: str | torch.device, backend: Backend) -> None:
        graph = self.graph
        users, items = graph.edge_users, graph.edge_items
        self.to_users = neighbour_sum(items, users, graph.items, graph.users, device=device, backend=backend)
        self.to_items = neighbour_sum(users, items, graph.users, graph.items, device=device, backend=backend)
        for name, degrees in (("user_scale", graph.user_degrees()), ("item_scale", graph.item_degrees())):
            scale = torch.from_numpy(degrees).clamp(min=1).float().rsqrt()[:, None]
            self.register_buffer(name, scale, persistent=False)

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


@dataclass(frozen=True, kw_only=True)
class XSimGclSpec(LightGcnSpec):
    """Configuration of XSimGCL.

    Attributes:
        noise: Length of the noise added to a vector in each layer in training, called epsilon in the paper.
        contrast_weight: Weight of the contrastive loss, relative to BPR.
        temperature: Divisor of the cosines in the contrastive loss; above 0.
    """

    family: ClassVar[str] = "xsimgcl"
    searched: ClassVar[Searched] = {
        **LightGcnSpec.searched,
        "noise": (0.05, 0.1, 0.2),
        "contrast_weight": Range(0.005, 0.15),
        "temperature": (0.1, 0.15, 0.2, 0.3),
    }

    noise: float = 0.1
    contrast_weight: float = 0.05
    temperature: float = 0.2


class XSimGcl(LightGcn):
    """LightGCN with noise in its layers in training, and a contrastive loss between first layer and final vectors.

    Each layer adds `noise * sign(e) * d` with a random direction d of length one (section 3.3, equation 7). The final
    vector is the mean of the layers without a node's own embedding. InfoNCE contrasts it with the first layer, for the
    users and the positives of a step (section 3.4). Scoring adds no noise.
    """

    spec_class = XSimGclSpec
    spec: XSimGclSpec  # pyright: ignore[reportIncompatibleVariableOverride]

    def _build(self, device: str | torch.device, backend: Backend) -> None:
        super()._build(device, backend)
        self._generator = torch.Generator()

    def reseed(self, seed: int) -> None:
        """Make the noise of the next step depend on `seed` alone."""
        self._generator.manual_seed(seed)

    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return the final vectors of all users and items, without noise; zeros for a node without edges."""
        (users, items), _ = self._views(noise=0.0)
        return users, items

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Return BPR of the final vectors plus the contrastive loss between first layer and final vectors."""
        final, first = self._views(self.spec.noise)
        vectors, items = final[0].index_select(0, users), final[1]
        positive = (vectors * items.index_select(0, positives)).sum(1)
        contrasts = [
            info_nce(of_final.index_select(0, nodes), of_first.index_select(0, nodes), self.spec.temperature)
            for of_final, of_first, nodes in zip(final, first, (users.unique(), positives.unique()), strict=True)
        ]
        return bpr(positive, products(vectors, items, negatives)) + self.spec.contrast_weight * sum(contrasts)

    def _views(self, noise: float) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return the mean over all layers, and the first layer, each for users and items."""
        layers, vectors = [], (self.users, self.items)
        for _ in range(self.spec.layers):
            users, items = self.layer(*vectors)
            vectors = self._disturbed(users, noise), self._disturbed(items, noise)
            layers.append(vectors)
        users, items = (torch.stack(side).mean(0) for side in zip(*layers, strict=True))
        return (users, items), layers[0]

    def _disturbed(self, vectors: Tensor, noise: float) -> Tensor:
        if not noise:
            return vectors
        drawn = torch.rand(vectors.shape, generator=self._generator).to(vectors.device)
        return vectors + noise * vectors.sign() * nn.functional.normalize(drawn)
