"""DLRM: embeddings and an MLP over the dense features meet in pairwise dot products (Naumov et al., 2019)."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from models.embeddings import PooledEmbeddings
from models.spec import Features, ModelSpec


class PairwiseProducts(torch.autograd.Function):
    """Dot product of each pair of a sample's vectors, each pair once.

    Autograd on its own would compute two gradients of the matrix of all products and add them, after a scatter; as that
    matrix is symmetric, one product with its symmetric gradient, read by index, is the same and much faster.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, pairs: Tensor, position: Tensor) -> Tensor:
        """`[batch, vectors, dim]` to `[batch, pairs]`; see `DenseLayers` for the two index tensors."""
        ctx.save_for_backward(vectors, position)
        return torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1).index_select(1, pairs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of the vectors."""
        vectors, position = ctx.saved_tensors
        count = vectors.shape[1]
        symmetric = nn.functional.pad(gradients[0], (0, 1)).index_select(1, position).view(-1, count, count)
        return torch.bmm(symmetric, vectors), None, None


class OutputLayer(nn.Linear):
    """The last layer, in float32 under autocast too: bf16 keeps three digits of a logit, for one small product."""

    def forward(self, input: Tensor) -> Tensor:
        """`[batch, inputs]` to `[batch, 1]`."""
        with torch.autocast("cuda" if input.is_cuda else "cpu", enabled=False):
            return super().forward(input.float())


class DenseLayers(nn.Module):
    """All of a DLRM but its tables.

    The top MLP sees the dot product of each pair of vectors and beside them the dense vector, as in the paper; where
    there are no dense features, the embeddings themselves take that place.

    Args:
        spec: widths of the layers.
        dense_features: number of dense columns, 0 for none.
        tables: number of embedding tables, 0 for none.

    Attributes:
        pairs: `[pairs]`, where the pair (i, j), i > j, stands in the flattened matrix of all products.
        position: `[vectors * vectors]`, its inverse in both triangles; the diagonal points behind the last pair.
    """

    pairs: Tensor
    position: Tensor

    def __init__(self, spec: ModelSpec, dense_features: int, tables: int) -> None:
        super().__init__()
        dim = spec.embedding_dim
        self.bottom = _mlp((dense_features, *spec.bottom_widths, dim), last_relu=True) if dense_features else None
        vectors = tables + (1 if dense_features else 0)
        left, right = torch.tril_indices(vectors, vectors, offset=-1)
        position = torch.full((vectors, vectors), len(left))
        position[left, right] = position[right, left] = torch.arange(len(left), device=left.device)
        self.register_buffer("pairs", left * vectors + right, persistent=False)
        self.register_buffer("position", position.flatten(), persistent=False)
        beside = dim if dense_features else tables * dim
        self.top = _mlp((len(left) + beside, *spec.top_widths, 1), dropout=spec.dropout)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Score a batch.

        Args:
            dense: `[batch, dense features]`.
            pooled: `[batch, tables, dim]`.

        Returns:
            `[batch]` logits in float32.
        """
        beside, vectors = pooled.flatten(1), pooled
        if self.bottom is not None:
            beside = self.bottom(dense).float()
            vectors = torch.cat([beside.unsqueeze(1), pooled], dim=1)
        # Under autocast too the products are of float32: of so few numbers each, they would gain nothing by casts.
        with torch.autocast("cuda" if pooled.is_cuda else "cpu", enabled=False):
            interactions = PairwiseProducts.apply(vectors, self.pairs, self.position)
        return self.top(torch.cat([beside, interactions], dim=1)).squeeze(1)  # pyright: ignore[reportArgumentType]


class Dlrm(nn.Module):
    """A DLRM over any mix of dense, single-valued and multi-valued features.

    Args:
        spec: the architecture.
        features: the input.
        embeddings: one table per categorical feature.

    Attributes:
        compiled_layers: stands in for `layers` where it is set (`engine.compile`); it shares their weights.
    """

    compiled_layers: Callable[[Tensor, Tensor], Tensor] | None = None

    def __init__(self, spec: ModelSpec, features: Features, embeddings: PooledEmbeddings) -> None:
        super().__init__()
        self.spec = spec
        self.features = features
        self.embeddings = embeddings
        self.layers = DenseLayers(spec, len(features.dense), len(features.categorical))

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Score a batch.

        Args:
            dense: `[batch, dense features]` float32.
            values: ids, field by field and sample by sample within a field.
            offsets: `[fields * batch + 1]`, where each bag starts in `values`, and the end.

        Returns:
            `[batch]` logits.
        """
        layers = self.compiled_layers or self.layers
        return layers(dense, self.embeddings(values, offsets))


def _mlp(widths: Sequence[int], *, dropout: float = 0.0, last_relu: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for position, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        is_last = position == len(widths) - 1
        layers.append(OutputLayer(inputs, outputs) if is_last and not last_relu else nn.Linear(inputs, outputs))
        if not is_last or last_relu:
            layers.append(nn.ReLU())
        if not is_last and dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)
