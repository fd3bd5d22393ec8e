"""DeepFM: a factorisation machine and a deep network over the same embeddings (Guo et al., IJCAI 2017, 1703.04247)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, scoring_mlp
from shunter.models.output_layer import full_precision
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class DeepfmSpec(ModelSpec):
    """A DeepFM; `top_widths` are those of its deep part."""

    family: ClassVar[str] = "deepfm"


class DeepfmLayers(nn.Module):
    """All of a DeepFM but its tables: `logit = FM + DNN` (equation 1).

    A row of a table holds all that DeepFM knows of an id: `embedding_dim - 1` factors, and in the last column the
    weight of first order. So the factorisation machine (equation 2)

        `FM = sum_i w_i + sum_{i<j} <v_i, v_j>`

    needs no second table, and each lookup brings both. The pairwise sum is that of Rendle (2010, lemma 3.1),
    `((sum_i v_i)^2 - sum_i v_i^2) / 2` summed over the factors, linear in the number of fields. The dense features are
    one more field, whose vector is the output of the bottom MLP.

    Several tasks share the factorisation machine, which each weighs by a number of its own; the deep network has a head
    for each: `logit_t = a_t FM + DNN_t`, with every `a_t` one at first.

    Args:
        spec: Widths of the deep network.
        features: Features that come in.
    """

    def __init__(self, spec: DeepfmSpec, features: Features) -> None:
        super().__init__()
        self.vectors = FieldVectors(spec, features)
        tasks = features.outputs
        self.deep = scoring_mlp(spec, self.vectors.count * (spec.embedding_dim - 1), tasks)
        self.machine_weights = nn.Parameter(torch.ones(tasks)) if tasks > 1 else None

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, tables, dim]` to logits as `models.families.family.Family` says."""
        vectors = self.vectors(dense, pooled)
        factors, weights = vectors[:, :, :-1], vectors[:, :, -1]
        with full_precision(vectors):
            pairs = factors.sum(1).square() - factors.square().sum(1)
            machine = weights.sum(1) + pairs.sum(1) / 2
        deep = self.deep(factors.flatten(1))
        if self.machine_weights is None:
            return machine + deep.squeeze(1)
        return machine.unsqueeze(1) * self.machine_weights + deep


# In a row of a table the last number has a meaning of its own, so the tables are all of one width.
DEEPFM = Family(spec=DeepfmSpec, layers=DeepfmLayers)
