"""ESMM: labels that depend on a click, trained on all impressions (Ma et al., SIGIR 2018, arXiv 1804.07931)."""

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
    """Configuration of an entire space multi-task model without further options; each label's MLP has `top_widths`."""

    family: ClassVar[str] = "esmm"


class EsmmLayers(nn.Module):
    """All layers of ESMM above the tables: `p(y_k) = p(y_{k-1}) p(y_k given y_{k-1})`, with labels in schema order.

    Each label has an MLP for its step, such as conversion after a click, over shared embeddings. The outputs are the
    log odds of the labels over all impressions, as in the data, so that no loss is computed on clicked samples alone
    (equation 2). A label after a label of 0 must be 0 in the data, not missing.

    Args:
        spec: Widths of the MLPs.
        features: Input features.
    """

    def __init__(self, spec: EsmmSpec, features: Features) -> None:
        super().__init__()
        self.vectors = FieldVectors(spec, features)
        self.steps = nn.ModuleList(scoring_mlp(spec, self.vectors.width) for _ in range(features.outputs))

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        inputs = self.vectors(dense, pooled).flatten(1)
        steps = torch.cat([step(inputs) for step in self.steps], dim=1)
        logits = [steps[:, 0]]
        for before, label in pairwise(range(steps.shape[1])):
            logits.append(both(logits[before], steps[:, label]))
        return torch.stack(logits, dim=1).squeeze(1)


def both(first: Tensor, second: Tensor) -> Tensor:
    """Return the log odds that two independent events both occur, without overflow or cancellation."""
    log = nn.functional.logsigmoid
    return log(first) + log(second) - torch.logaddexp(log(-first), log(first) + log(-second))


ESMM = Family(spec=EsmmSpec, layers=EsmmLayers)
