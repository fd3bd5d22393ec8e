"""DLRM: pairwise products of embeddings and an MLP over the dense features (Naumov et al., arXiv 1906.00091)."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.models.families.family import Family
from shunter.models.interactions import DlrmInteraction, dlrm_interaction, pair_count
from shunter.models.layers import bottom_mlp, scoring_mlp
from shunter.models.spec import Features, ModelSpec
from shunter.record import OPTIONAL


@dataclass(frozen=True, kw_only=True)
class DlrmSpec(ModelSpec):
    """Configuration of DLRM.

    Attributes:
        interaction: Interaction of the vectors of a sample, below the top MLP (`shunter.models.interactions`).
    """

    family: ClassVar[str] = "dlrm"

    interaction: DlrmInteraction = field(default="dot", metadata=OPTIONAL)


class DlrmLayers(nn.Module):
    """All layers of DLRM above the tables.

    The input of the top MLP is the dot product of each pair of vectors and the dense vector, as in the paper. Without
    dense features the embeddings themselves replace the dense vector. Another interaction with as many outputs can
    replace the dot products (`shunter.models.interactions`).

    Raises:
        RequestError: The interaction is unknown.
    """

    def __init__(self, spec: DlrmSpec, features: Features) -> None:
        super().__init__()
        dense, tables, dim = len(features.dense), len(features.categorical), spec.embedding_dim
        self.bottom = bottom_mlp(spec, dense, dim) if dense else None
        vectors = tables + (1 if dense else 0)
        self.interaction = dlrm_interaction(spec.interaction, dim, vectors)
        self.top = scoring_mlp(spec, pair_count(vectors) + (dim if dense else tables * dim), features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        beside, vectors = pooled.flatten(1), pooled
        if self.bottom is not None:
            beside = self.bottom(dense).float()
            vectors = torch.cat([beside.unsqueeze(1), pooled], dim=1)
        return self.top(torch.cat([beside, self.interaction(vectors)], dim=1)).squeeze(1)


DLRM = Family(spec=DlrmSpec, layers=DlrmLayers)
