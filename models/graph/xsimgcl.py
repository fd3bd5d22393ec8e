"""XSimGCL (Yu et al., "XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation", TKDE 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.models.graph.lightgcn import LightGcn, LightGcnSpec
from shunter.models.graph.losses import bpr, info_nce, products
from shunter.models.graph.propagation import Backend
from shunter.models.graph.spec import Graph, Range, Searched


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

    Args:
        spec: Architecture.
        graph: Edges.
        device: Device of the model.
        backend: Library of the sums.
    """

    spec_class = XSimGclSpec
    spec: XSimGclSpec  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, spec: XSimGclSpec, graph: Graph, *, device: str | torch.device = "cpu", backend: Backend = "auto"
    ) -> None:
        super().__init__(spec, graph, device=device, backend=backend)
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
