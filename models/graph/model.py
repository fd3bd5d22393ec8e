"""Base class of graph recommenders: a vector for each user and each item, whose dot product is the score."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from shunter.models.graph.losses import bpr
from shunter.models.graph.propagation import Backend
from shunter.models.graph.spec import Graph, VectorSpec

Spec = TypeVar("Spec", bound=VectorSpec)
INITIAL_DEVIATION = 0.1  # standard deviation of the initial embeddings, as in LightGCN's published code


@dataclass(frozen=True, kw_only=True)
class LayerCounts:
    """Operation counts of the layers of a model in one forward pass over the whole graph.

    Attributes:
        summed_rows: Vectors read along edges.
        written_rows: Vectors written.
        operators: Number of dispatched operators, including the backward pass.
        embeddings: Learned vectors of nodes.
        products: Number of rows of each product with a weight matrix, and input width in multiples of `embedding_dim`.
        products_of_sample: Additional products with square matrices, for each sample.
        biases: Number of bias vectors in addition to the weight matrices.
    """

    summed_rows: int
    written_rows: int
    operators: int
    embeddings: int
    products: tuple[tuple[int, int], ...] = ()
    biases: int = 0
    products_of_sample: int = 0


class GraphModel(nn.Module, ABC, Generic[Spec]):
    """Base class of recommenders over a graph of users and items.

    Args:
        spec: Architecture.
        graph: Edges between users and items.
        device: Device of the model.
        backend: Library that sums vectors along the edges.

    Attributes:
        spec_class: Class of the configuration.
        users: User embeddings before propagation along the edges, `[users, dim]`.
        items: Item embeddings before propagation along the edges, `[items, dim]`.
        has_user_embeddings: Whether users have learned embeddings; if not, `users` has no row.
        reads_order: Whether the model learns from the order of each user's interactions. A batch then holds all
            interactions of some users instead of single (user, item) pairs.
    """

    spec_class: ClassVar[type[VectorSpec]]
    has_user_embeddings: ClassVar[bool] = True
    reads_order: ClassVar[bool] = False

    def __init__(
        self, spec: Spec, graph: Graph, *, device: str | torch.device = "cpu", backend: Backend = "auto"
    ) -> None:
        super().__init__()
        self.spec, self.graph = spec, graph
        own_users = graph.users if self.has_user_embeddings else 0
        self.users = nn.Parameter(INITIAL_DEVIATION * torch.randn(own_users, spec.embedding_dim))
        self.items = nn.Parameter(INITIAL_DEVIATION * torch.randn(graph.items, spec.embedding_dim))
        self._build(device, backend)
        self.to(device)

    def _build(self, device: str | torch.device, backend: Backend) -> None:
        """Build layers, buffers and sums of the model, after its embeddings are drawn."""

    @classmethod
    @abstractmethod
    def layer_counts(cls, spec: Spec, graph: Graph) -> LayerCounts:
        """Count the operations of a step without building the model."""

    @abstractmethod
    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Return the final vectors of all users `[users, dim]` and all items `[items, dim]`."""

    def forward(self, users: Tensor, items: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the final vectors of some users and items, `[users, dim]` and `[items, dim]`, for one training step.

        Args:
            users: User ids, int64 `[users]`.
            items: Item ids, int64 `[items]`.
            chosen: Positive item of each user in this step, `[users]`, which a model that samples neighbours can hide
                from its layers. None if there are no positives.
        """
        user_vectors, item_vectors = self.all_vectors()
        return user_vectors.index_select(0, users), item_vectors.index_select(0, items)

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Return the loss of a training step, a scalar: BPR, unless a model overrides it.

        Args:
            users: User ids, int64 `[samples]`.
            positives: Positive item of each sample, int64 `[samples]`.
            negatives: Negative items of each sample, int64 `[samples, negatives]`.
        """
        samples = len(users)
        vectors, items = self(users, torch.cat([positives, negatives.flatten()]), positives)
        positive = (vectors * items[:samples]).sum(1)
        return bpr(positive, (vectors[:, None] * items[samples:].view(*negatives.shape, -1)).sum(2))

    @classmethod
    def scored_items(cls, negatives: int) -> int:
        """Return the number of items that are scored for each sample in the loss."""
        return 1 + negatives

    def reseed(self, seed: int) -> None:
        """Make the random numbers of the next step depend on `seed` alone."""

    def own_squares(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the sum of the squared embeddings of these users and items, with repetitions counted."""
        return _weighted_squares(self.users, users) + _weighted_squares(self.items, items)


def _weighted_squares(embeddings: Tensor, ids: Tensor) -> Tensor:
    """Return the sum of the squares of the rows `ids`; counting ids is several times faster than gathering rows."""
    counts = torch.bincount(ids, minlength=len(embeddings)).to(embeddings.dtype)
    return counts @ embeddings.square().sum(1)
