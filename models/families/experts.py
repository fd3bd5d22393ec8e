"""What families for several labels share: mixing experts by a gate, and a head for each label over what it is given."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.models.layers import mlp, regularisation
from shunter.models.spec import ModelSpec


class Gate(nn.Module):
    """`sum_i softmax_i(W x + b) e_i`: experts, weighed by what comes in.

    Args:
        inputs: Width of x.
        experts: Number of experts.
    """

    def __init__(self, inputs: int, experts: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(inputs, experts)

    def forward(self, inputs: Tensor, experts: Sequence[Tensor]) -> Tensor:
        """`[batch, inputs]` and of each expert `[batch, width]` to `[batch, width]` in float32."""
        weights = self.weigh(inputs).float().softmax(1)
        return (weights.unsqueeze(2) * torch.stack([expert.float() for expert in experts], dim=1)).sum(1)


class LabelHeads(nn.Module):
    """For each label a linear layer, or with `task_tower_width` a small MLP, over an input of its own.

    Args:
        spec: `task_tower_width`, and what regularises.
        inputs: Width of each input.
        labels: How many.
    """

    def __init__(self, spec: ModelSpec, inputs: int, labels: int) -> None:
        super().__init__()
        tower = () if spec.task_tower_width is None else (spec.task_tower_width,)
        widths = (inputs, *tower, 1)
        self.heads = nn.ModuleList(mlp(widths, **regularisation(spec)) for _ in range(labels))

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Of each label `[batch, inputs]` to logits as `shunter.models.families.family.Family` says."""
        return torch.cat([head(one) for head, one in zip(self.heads, inputs, strict=True)], dim=1).squeeze(1)
