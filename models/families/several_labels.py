"""Families for several labels: MMoE, PLE and ESMM.

MMoE: the labels share experts, with a gate for each label (Ma et al., KDD 2018).
PLE: levels of experts, some for each label and some shared (Tang et al., RecSys 2020).
ESMM: labels that depend on a click, trained on all impressions (Ma et al., SIGIR 2018, arXiv 1804.07931).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, hidden_layers, mlp, regularisation, scoring_mlp
from shunter.models.spec import Features, ModelSpec


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


@dataclass(frozen=True, kw_only=True)
class MmoeSpec(ModelSpec):
    """Configuration of a multi-gate mixture of experts; `top_widths` are those of each expert.

    Attributes:
        experts: Number of experts.
    """

    family: ClassVar[str] = "mmoe"

    experts: int = 4


class MmoeLayers(nn.Module):
    """All layers of MMoE above the tables: `logit_k = h_k(sum_i softmax_i(W_k x) f_i(x))` for label k (equations 5-7).

    With one label it is a mixture of experts with one gate.

    Raises:
        RequestError: There are fewer than two experts.
    """

    def __init__(self, spec: MmoeSpec, features: Features) -> None:
        super().__init__()
        if spec.experts < 2:
            raise RequestError(f"A model mmoe with experts = {spec.experts} has no experts to mix: use 2 or more.")
        self.vectors = FieldVectors(spec, features)
        width = self.vectors.width
        self.experts = nn.ModuleList(hidden_layers(spec, width, spec.top_widths) for _ in range(spec.experts))
        self.gates = nn.ModuleList(Gate(width, spec.experts) for _ in range(features.outputs))
        self.heads = LabelHeads(spec, spec.top_widths[-1] if spec.top_widths else width, features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        inputs = self.vectors(dense, pooled).flatten(1)
        experts = [expert(inputs) for expert in self.experts]
        return self.heads([gate(inputs, experts) for gate in self.gates])


MMOE = Family(spec=MmoeSpec, layers=MmoeLayers, ranges={"experts": (2, 4, 8)})


@dataclass(frozen=True, kw_only=True)
class PleSpec(ModelSpec):
    """Configuration of progressive layered extraction; `top_widths` are those of each expert.

    Attributes:
        extraction_levels: Number of levels of experts; one level is the customised gate control (CGC) of the paper.
        label_experts: Experts of each label in a level.
        shared_experts: Shared experts in a level.
    """

    family: ClassVar[str] = "ple"

    extraction_levels: int = 1
    label_experts: int = 2
    shared_experts: int = 2


class ExtractionLevel(nn.Module):
    """Level of experts: each label mixes its own experts with the shared ones, and the shared part mixes all experts.

    Args:
        spec: The experts.
        inputs: Width of the input, for each label and for the shared part.
        labels: Number of labels.
        is_last: Whether this is the last level, which has no shared output.

    Attributes:
        width: Output width.
    """

    def __init__(self, spec: PleSpec, inputs: int, labels: int, *, is_last: bool) -> None:
        super().__init__()

        def experts(count: int) -> nn.ModuleList:
            return nn.ModuleList(hidden_layers(spec, inputs, spec.top_widths) for _ in range(count))

        own, shared = spec.label_experts, spec.shared_experts
        self.own = nn.ModuleList(experts(own) for _ in range(labels))
        self.shared = experts(shared)
        self.gates = nn.ModuleList(Gate(inputs, own + shared) for _ in range(labels))
        self.shared_gate = None if is_last else Gate(inputs, labels * own + shared)
        self.width = spec.top_widths[-1] if spec.top_widths else inputs

    def forward(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Map `[batch, inputs]` of each label, then shared, to `[batch, width]`; the last level has no shared part."""
        *labels, common = inputs
        shared = [expert(common) for expert in self.shared]
        own = [[expert(one) for expert in experts] for experts, one in zip(self.own, labels, strict=True)]  # pyright: ignore[reportGeneralTypeIssues]
        mixed = [gate(one, [*mine, *shared]) for gate, one, mine in zip(self.gates, labels, own, strict=True)]
        if self.shared_gate is not None:
            mixed.append(self.shared_gate(common, [*(expert for mine in own for expert in mine), *shared]))
        return mixed


class PleLayers(nn.Module):
    """All layers of PLE above the tables. The first level has the same input for each label and the shared part.

    Raises:
        RequestError: The number of levels, label experts or shared experts is below 1.
    """

    def __init__(self, spec: PleSpec, features: Features) -> None:
        super().__init__()
        for option in ("extraction_levels", "label_experts", "shared_experts"):
            if getattr(spec, option) < 1:
                raise RequestError(f"The number of {option} is {getattr(spec, option)}: use at least 1.")
        self.vectors = FieldVectors(spec, features)
        self.labels = features.outputs
        levels, width = [], self.vectors.width
        for level in range(spec.extraction_levels):
            is_last = level == spec.extraction_levels - 1
            levels.append(ExtractionLevel(spec, width, self.labels, is_last=is_last))
            width = levels[-1].width
        self.levels = nn.ModuleList(levels)
        self.heads = LabelHeads(spec, width, self.labels)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        states = [self.vectors(dense, pooled).flatten(1)] * (self.labels + 1)
        for level in self.levels:
            states = level(states)
        return self.heads(states)


PLE = Family(
    spec=PleSpec,
    layers=PleLayers,
    ranges={"extraction_levels": (1, 2), "label_experts": (1, 2, 4), "shared_experts": (1, 2, 4)},
)


@dataclass(frozen=True, kw_only=True)
class EsmmSpec(ModelSpec):
    """Configuration of an entire space multi-task model without further options; each label's MLP has `top_widths`."""

    family: ClassVar[str] = "esmm"


class EsmmLayers(nn.Module):
    """All layers of ESMM above the tables: `p(y_k) = p(y_{k-1}) p(y_k given y_{k-1})`, with labels in schema order.

    Each label has an MLP for its step, such as conversion after a click, over shared embeddings. The outputs are the
    log odds of the labels over all impressions, as in the data, so that no loss is computed on clicked samples alone
    (equation 2). A label after a label of 0 must be 0 in the data, not missing.
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
