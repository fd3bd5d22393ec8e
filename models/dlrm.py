"""DLRM: embeddings and an MLP over the dense features meet in pairwise dot products (Naumov et al., 2019)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from models.embeddings import PooledEmbeddings
from models.spec import Features, ModelSpec


class DenseLayers(nn.Module):
    """All of a DLRM but its tables.

    The top MLP sees the dot product of each pair of vectors and beside them the dense vector, as in the paper; where
    there are no dense features, the embeddings themselves take that place.

    Args:
        spec: widths of the layers.
        dense_features: number of dense columns, 0 for none.
        tables: number of embedding tables, 0 for none.
    """

    pairs: Tensor

    def __init__(self, spec: ModelSpec, dense_features: int, tables: int) -> None:
        super().__init__()
        dim = spec.embedding_dim
        self.bottom = _mlp((dense_features, *spec.bottom_widths, dim), last_relu=True) if dense_features else None
        vectors = tables + (1 if dense_features else 0)
        left, right = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", left * vectors + right, persistent=False)
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
            beside = self.bottom(dense)
            vectors = torch.cat([beside.unsqueeze(1), pooled.to(beside.dtype)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        interactions = products.index_select(1, self.pairs)
        return self.top(torch.cat([beside.to(interactions.dtype), interactions], dim=1)).squeeze(1).float()


class Dlrm(nn.Module):
    """A DLRM over any mix of dense, single-valued and multi-valued features.

    Args:
        spec: the architecture.
        features: the input.
        embeddings: one table per categorical feature.
    """

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
        return self.layers(dense, self.embeddings(values, offsets))


def _mlp(widths: Sequence[int], *, dropout: float = 0.0, last_relu: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for position, (inputs, outputs) in enumerate(pairwise(widths), start=1):
        is_last = position == len(widths) - 1
        layers.append(nn.Linear(inputs, outputs))
        if not is_last or last_relu:
            layers.append(nn.ReLU())
        if not is_last and dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)
