"""DLRM: embeddings and an MLP over the dense features meet in pairwise products (Naumov et al., arXiv 1906.00091)."""

import torch
from torch import Tensor, nn

from models.interactions import dlrm_interaction, pair_count
from models.layers import mlp, scoring_mlp
from models.spec import Features, ModelSpec


class DlrmLayers(nn.Module):
    """All of a DLRM but its tables.

    The top MLP sees the dot product of each pair of vectors and beside them the dense vector, as in the paper; where
    there are no dense features, the embeddings themselves take that place. In the place of the dot products another
    interaction may stand, which gives as many numbers (`models.interactions`).

    Args:
        spec: widths of the layers, and the interaction.
        features: the input.

    Raises:
        RequestError: the interaction is unknown.
    """

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        dense, tables, dim = len(features.dense), len(features.categorical), spec.embedding_dim
        self.bottom = mlp((dense, *spec.bottom_widths, dim), last_relu=True) if dense else None
        vectors = tables + (1 if dense else 0)
        self.interaction = dlrm_interaction(spec, vectors)
        self.top = scoring_mlp(spec, pair_count(vectors) + (dim if dense else tables * dim), features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, tables, dim]` to logits as `models.registry.FAMILIES` says."""
        beside, vectors = pooled.flatten(1), pooled
        if self.bottom is not None:
            beside = self.bottom(dense).float()
            vectors = torch.cat([beside.unsqueeze(1), pooled], dim=1)
        return self.top(torch.cat([beside, self.interaction(vectors)], dim=1)).squeeze(1)
