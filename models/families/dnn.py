"""The plain deep network: all vectors of a sample beside each other, and an MLP (Covington et al., RecSys 2016).

Without any explicit interaction, it is the simplest strong baseline.
"""

from torch import Tensor, nn

from models.layers import FieldVectors, scoring_mlp
from models.spec import Features, ModelSpec


class DnnLayers(nn.Module):
    """All of a deep network but its tables.

    Args:
        spec: `top_widths` of the MLP.
        features: the input.
    """

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        self.vectors = FieldVectors(spec, features)
        self.top = scoring_mlp(spec, self.vectors.width, features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, tables, dim]` to logits as `models.registry.FAMILIES` says."""
        return self.top(self.vectors(dense, pooled).flatten(1)).squeeze(1)
