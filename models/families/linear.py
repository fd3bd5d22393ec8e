"""Code that families without hidden layers share: the linear term, and the check of unsupported options."""

from dataclasses import fields

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.number_bins import NumberBins
from shunter.models.output_layer import full_precision
from shunter.models.spec import Features, ModelSpec

HIDDEN_OPTIONS = ("bottom_widths", "top_widths", "dropout", "batch_norm", "task_tower_width")


class LinearTerm(nn.Module):
    """Linear term for each task: a weight for each dense feature (or each share of its bins), and a bias.

    Weights and biases are initially zero, and stay in float32 under autocast.

    Args:
        spec: Configuration; only `numeric_bins` is used.
        features: Input features.
    """

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        count = len(features.dense) * (1 + spec.numeric_bins)
        self.bins = NumberBins(len(features.dense), spec.numeric_bins) if count and spec.numeric_bins else None
        self.weight = nn.Parameter(torch.zeros(features.outputs, count)) if count else None
        self.bias = nn.Parameter(torch.zeros(features.outputs))

    def forward(self, dense: Tensor) -> Tensor:
        """Map `[batch, dense features]` to `[batch, tasks]`."""
        if self.weight is None:
            return self.bias.expand(dense.shape[0], -1)
        with full_precision(dense):
            numbers = dense.float() if self.bins is None else self.bins(dense)
            return nn.functional.linear(numbers, self.weight, self.bias)


def check_no_hidden_layers(spec: ModelSpec) -> None:
    """Raise if an option of hidden layers is set, so that no option is silently ignored.

    Raises:
        RequestError: An option of hidden layers differs from its default.
    """
    defaults = {option.name: option.default for option in fields(spec)}
    for name in HIDDEN_OPTIONS:
        if getattr(spec, name) != defaults[name]:
            raise RequestError(
                f"The option {name} has no effect in a model of family {spec.family!r}, which has no "
                "hidden layers: leave it out."
            )
