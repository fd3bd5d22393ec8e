"""Ensemble of several models that scores as one model."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.models.combination import Combination, Combiner
from shunter.models.registry import Model


class Ensemble(nn.Module):
    """Weighted mean of the logits of the members, or another combination; a single member is a valid ensemble.

    Args:
        models: Members with the same features.
        weights: Weight of each member, not negative; they are scaled to sum 1. With several tasks each member has a
            row with a weight for every task.
        scale: Factor of the mean, positive; a factor below 1 corrects overconfidence (Guo et al., "On Calibration of
            Modern Neural Networks", ICML 2017: 1 / temperature). With several tasks one factor for each task.
        combination: Combination instead of the mean of logits, for a single task and without a scale.

    Attributes:
        weights: Weights times scale.
        combiner: Computes the combination; None is the mean of logits.
    """

    weights: Tensor

    def __init__(
        self,
        models: Sequence[Model],
        weights: Sequence[float] | Sequence[Sequence[float]],
        scale: float | Sequence[float] = 1.0,
        combination: Combination | None = None,
    ) -> None:
        super().__init__()
        assert models, "an ensemble has at least one member"
        assert len(models) == len(weights), "each member has one weight"
        shares = torch.tensor(weights, dtype=torch.float64)
        assert shares.shape[1:] == ((len(models[0].features.tasks),) if models[0].features.tasks else ())
        assert shares.min() >= 0, "no weight is negative"
        assert shares.sum(0).min() > 0, "a weight is positive"
        assert all(model.features == models[0].features for model in models), "members share their features"
        self.features = models[0].features
        self.members = nn.ModuleList(models)
        device = models[0].embeddings.weight.device
        if device.type == "meta":  # tables in a file, which have no memory yet
            device = torch.device("cpu")
        scales = torch.tensor(scale, dtype=torch.float64)
        assert scales.min() > 0, "a scale is positive"
        self.register_buffer("weights", (shares / shares.sum(0) * scales).float().to(device))
        assert combination is None or shares.ndim == scale == 1, (
            "a combination supports only one task and replaces the scale"
        )
        self.combiner = None if combination is None else Combiner(combination).to(device)

    @property
    def models(self) -> tuple[Model, ...]:
        """Members of the ensemble."""
        return tuple(self.members)  # pyright: ignore[reportReturnType]

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the ensemble's scores of a batch; arguments and result are those of a member."""
        logits = torch.stack([member(dense, values, offsets) for member in self.members], dim=1)
        if self.combiner is not None:
            return self.combiner(logits.float(), self.weights)
        return logits @ self.weights if self.weights.ndim == 1 else (logits * self.weights).sum(1)
