"""MMoE: several labels share experts, with a gate for each label (Ma et al., KDD 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.experts import Gate, LabelHeads
from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, hidden_layers
from shunter.models.spec import Features, ModelSpec


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

    Args:
        spec: The experts, and the width of a label's tower.
        features: Input features.

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
