"""What the families without hidden layers share: the linear term, and the options that they do not have."""

from dataclasses import fields

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.number_bins import NumberBins
from shunter.models.output_layer import full_precision
from shunter.models.spec import Features, ModelSpec

HIDDEN_OPTIONS = ("bottom_widths", "top_widths", "dropout", "batch_norm", "task_tower_width")


class LinearTerm(nn.Module):
    """A weight for each dense feature, or share of a bin of one, and a bias, for each task.

    They are zero at first, and in float32 under autocast too.

    Args:
        spec: `numeric_bins`.
        features: Features that come in.
    """

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        count = len(features.dense) * (1 + spec.numeric_bins)
        self.bins = NumberBins(len(features.dense), spec.numeric_bins) if count and spec.numeric_bins else None
        self.weight = nn.Parameter(torch.zeros(features.outputs, count)) if count else None
        self.bias = nn.Parameter(torch.zeros(features.outputs))

    def forward(self, dense: Tensor) -> Tensor:
        """`[batch, dense features]` to `[batch, tasks]`."""
        if self.weight is None:
            return self.bias.expand(len(dense), -1)
        with full_precision(dense):
            numbers = dense.float() if self.bins is None else self.bins(dense)
            return nn.functional.linear(numbers, self.weight, self.bias)


def check_no_hidden_layers(spec: ModelSpec) -> None:
    """Refuse options of hidden layers, so that none is silently ignored.

    Raises:
        RequestError: One of them is not at its default.
    """
    defaults = {option.name: option.default for option in fields(spec)}
    for name in HIDDEN_OPTIONS:
        if getattr(spec, name) != defaults[name]:
            raise RequestError(
                f"The option {name} does nothing in a model of family {spec.family!r}, which has no hidden layers: "
                "leave it out."
            )
