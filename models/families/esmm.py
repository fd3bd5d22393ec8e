"""ESMM: what follows a click, learned over all impressions (Ma et al., SIGIR 2018, arXiv 1804.07931)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, scoring_mlp
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class EsmmSpec(ModelSpec):
    """An entire space multi-task model; `top_widths` are those of the MLP of each label. It has no options."""

    family: ClassVar[str] = "esmm"


class EsmmLayers(nn.Module):
    """All of an ESMM but its tables: `p(y_k) = p(y_{k-1}) p(y_k given y_{k-1})`, the labels in the order of the schema.

    Each label has an MLP for its step, such as the conversion of what was clicked, over embeddings that all share. What
    goes out are the log odds of the labels over all impressions, as the data has them, so that no loss is taken over
    clicked samples alone (equation 2). Labels that are missing where the one before is 0 belong in the data as 0.

    Args:
        spec: Widths of the MLPs.
        features: Features that come in.
    """

    def __init__(self, spec: EsmmSpec, features: Features) -> None:
        super().__init__()
        self.vectors = FieldVectors(spec, features)
        self.steps = nn.ModuleList(scoring_mlp(spec, self.vectors.width) for _ in range(features.outputs))

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, tables, dim]` to logits as `models.families.family.Family` says."""
        inputs = self.vectors(dense, pooled).flatten(1)
        steps = torch.cat([step(inputs) for step in self.steps], dim=1)
        logits = [steps[:, 0]]
        for before, label in pairwise(range(steps.shape[1])):
            logits.append(both(logits[before], steps[:, label]))
        return torch.stack(logits, dim=1).squeeze(1)


def both(first: Tensor, second: Tensor) -> Tensor:
    """Log odds of two independent events together, from those of each, without overflow or cancellation."""
    log = nn.functional.logsigmoid
    return log(first) + log(second) - torch.logaddexp(log(-first), log(first) + log(-second))


ESMM = Family(spec=EsmmSpec, layers=EsmmLayers)
