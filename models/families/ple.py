"""PLE: levels of experts, some for each label and some shared (Tang et al., RecSys 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.experts import Gate, LabelHeads
from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, hidden_layers
from shunter.models.spec import Features, ModelSpec


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

    Args:
        spec: Levels and experts, and the width of a label's tower.
        features: Input features.

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
