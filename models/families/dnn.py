"""Plain deep network: an MLP over the concatenated vectors of a sample (Covington et al., RecSys 2016).

Without any explicit interaction, it is the simplest strong baseline.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, scoring_mlp
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class DnnSpec(ModelSpec):
    """Configuration of a deep network, with only the options that all families share."""

    family: ClassVar[str] = "dnn"


class DnnLayers(nn.Module):
    """All layers of a deep network above the tables."""

    def __init__(self, spec: DnnSpec, features: Features) -> None:
        super().__init__()
        self.vectors = FieldVectors(spec, features)
        self.top = scoring_mlp(spec, self.vectors.width, features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        return self.top(self.vectors(dense, pooled).flatten(1)).squeeze(1)


DNN = Family(spec=DnnSpec, layers=DnnLayers)
