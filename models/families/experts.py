"""Modules that families for several labels share: a gate that mixes experts, and a head for each label."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.models.layers import mlp, regularisation
from shunter.models.spec import ModelSpec


class Gate(nn.Module):
    """`sum_i softmax_i(W x + b) e_i`: a mixture of experts, weighted by the input.

    Args:
        inputs: Width of x.
        experts: Number of experts.
    """

    def __init__(self, inputs: int, experts: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(inputs, experts)

    def forward(self, inputs: Tensor, experts: Sequence[Tensor]) -> Tensor:
        """Map inputs `[batch, inputs]` and expert outputs, `[batch, width]` each, to `[batch, width]` in float32."""
        weights = self.weigh(inputs).float().softmax(1)
        return (weights.unsqueeze(2) * torch.stack([expert.float() for expert in experts], dim=1)).sum(1)


class LabelHeads(nn.Module):
    """A head for each label, with its own input: a linear layer, or a small MLP with `task_tower_width`.

    Args:
        spec: `task_tower_width`, and regularisation.
        inputs: Width of each input.
        labels: Number of labels.
    """

    def __init__(self, spec: ModelSpec, inputs: int, labels: int) -> None:
        super().__init__()
        tower = () if spec.task_tower_width is None else (spec.task_tower_width,)
        widths = (inputs, *tower, 1)
        self.heads = nn.ModuleList(mlp(widths, **regularisation(spec)) for _ in range(labels))

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Map `[batch, inputs]` of each label to logits, see `shunter.models.families.family.Family`."""
        return torch.cat([head(one) for head, one in zip(self.heads, inputs, strict=True)], dim=1).squeeze(1)
