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
    """Configuration of DeepFM; `top_widths` are those of the deep part."""

    family: ClassVar[str] = "deepfm"


class DeepfmLayers(nn.Module):
    """All layers of DeepFM above the tables: `logit = FM + DNN` (equation 1).

    A table row has all parameters of an id: `embedding_dim - 1` factors, and in the last column the first-order weight.
    So the factorisation machine (equation 2)

        `FM = sum_i w_i + sum_{i<j} <v_i, v_j>`

    needs no second table, and each lookup returns factors and weight. The pairwise sum is that of Rendle (2010, lemma
    3.1), `((sum_i v_i)^2 - sum_i v_i^2) / 2` summed over the factors, which is linear in the number of fields. The
    dense features are one more field, whose vector is the output of the bottom MLP.

    Several tasks share the factorisation machine, with one factor for each task; the deep network has a head for each:
    `logit_t = a_t FM + DNN_t`, with every `a_t` initially 1.
    """

    def __init__(self, spec: DeepfmSpec, features: Features) -> None:
        super().__init__()
        self.vectors = FieldVectors(spec, features)
        tasks = features.outputs
        self.deep = scoring_mlp(spec, self.vectors.count * (spec.embedding_dim - 1), tasks)
        self.machine_weights = nn.Parameter(torch.ones(tasks)) if tasks > 1 else None

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        vectors = self.vectors(dense, pooled)
        factors, weights = vectors[:, :, :-1], vectors[:, :, -1]
        with full_precision(vectors):
            pairs = factors.sum(1).square() - factors.square().sum(1)
            machine = weights.sum(1) + pairs.sum(1) / 2
        deep = self.deep(factors.flatten(1))
        if self.machine_weights is None:
            return machine + deep.squeeze(1)
        return machine.unsqueeze(1) * self.machine_weights + deep


# The last number of a table row is a weight, so all tables must have the same width.
DEEPFM = Family(spec=DeepfmSpec, layers=DeepfmLayers)
