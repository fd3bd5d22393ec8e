"""What all graph recommenders have in common: a vector for each user and each item, whose product is the score."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from shunter.models.graph.losses import bpr
from shunter.models.graph.propagation import Backend
from shunter.models.graph.spec import Graph, VectorSpec

Spec = TypeVar("Spec", bound=VectorSpec)
INITIAL_DEVIATION = 0.1  # of the embeddings, as in LightGCN's own code


@dataclass(frozen=True, kw_only=True)
class LayerCounts:
    """What the layers of a model move and multiply in one forward pass over the whole graph.

    Attributes:
        summed_rows: Vectors read along edges.
        written_rows: Vectors that result.
        operators: Operators dispatched, those of the backward pass included.
        embeddings: Vectors that are learned for nodes.
        products: Rows, and width of the input in vectors, of each product with a matrix of weights.
        products_of_sample: Products with square matrices that each sample asks for, beside these.
        biases: Learned vectors beside these matrices.
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

    @classmethod
    @abstractmethod
    def layer_counts(cls, spec: Spec, graph: Graph) -> LayerCounts:
        """What a step asks for, counted without building the model."""

    @abstractmethod
    def all_vectors(self) -> tuple[Tensor, Tensor]:
        """Final vectors of all users `[users, dim]` and all items `[items, dim]`."""

    def forward(self, users: Tensor, items: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Final vectors of some users and some items, `[users, dim]` and `[items, dim]`, for one step of training.

        Args:
            users: Int64 `[users]`.
            items: Int64 `[items]`.
            chosen: An item that each user chose, `[users]`, which the step asks for; a model that draws neighbours does
                not show it the answer. None where nothing is asked for.
        """
        user_vectors, item_vectors = self.all_vectors()
        return user_vectors.index_select(0, users), item_vectors.index_select(0, items)

    def loss(self, users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """What a step of training makes smaller, a scalar: BPR, where a model has no loss of its own.

        Args:
            users: Int64 `[samples]`.
            positives: An item that each chose, int64 `[samples]`.
            negatives: Items that each did not choose, int64 `[samples, negatives]`.
        """
        samples = len(users)
        vectors, items = self(users, torch.cat([positives, negatives.flatten()]), positives)
        positive = (vectors * items[:samples]).sum(1)
        return bpr(positive, (vectors[:, None] * items[samples:].view(*negatives.shape, -1)).sum(2))

    @classmethod
    def scored_items(cls, negatives: int) -> int:
        """Items that a sample is scored with in its loss."""
        return 1 + negatives

    def reseed(self, seed: int) -> None:
        """Make what the next step draws depend on `seed` alone."""

    def own_squares(self, users: Tensor, items: Tensor) -> Tensor:
        """Sum of the squares of the embeddings of these users and items; one that is there twice counts twice."""
        return _weighted_squares(self.users, users) + _weighted_squares(self.items, items)


def _weighted_squares(embeddings: Tensor, ids: Tensor) -> Tensor:
    """By counting the ids: a gather of the rows, and the scatter of its gradient, would take several times as long."""
    counts = torch.bincount(ids, minlength=len(embeddings)).to(embeddings.dtype)
    return counts @ embeddings.square().sum(1)
