"""Several models that score as one."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.registry import Model


class Ensemble(nn.Module):
    """The weighted mean of the logits of its members; a single member is a valid ensemble.

    Args:
        models: members over the same features.
        weights: one each, not negative; they are scaled to sum to one.
    """

    weights: Tensor

    def __init__(self, models: Sequence[Model], weights: Sequence[float]) -> None:
        super().__init__()
        assert models, "an ensemble has at least one member"
        assert len(models) == len(weights), "each member has one weight"
        assert min(weights) >= 0, "no weight is negative"
        assert sum(weights) > 0, "a weight is positive"
        assert all(model.features == models[0].features for model in models), "members share their features"
        self.features = models[0].features
        self.members = nn.ModuleList(models)
        device = models[0].embeddings.weight.device
        normalised = torch.tensor(weights, dtype=torch.float64) / sum(weights)
        self.register_buffer("weights", normalised.float().to(device))

    @property
    def models(self) -> tuple[Model, ...]:
        """The members, typed."""
        return tuple(self.members)  # pyright: ignore[reportReturnType]

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Score a batch; arguments and result are those of a member."""
        logits = torch.stack([member(dense, values, offsets) for member in self.members], dim=1)
        return logits @ self.weights
