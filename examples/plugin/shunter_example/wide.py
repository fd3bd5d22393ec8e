"""Wide: a weight for each number of each embedding; name the paper here."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, task_heads
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class WideSpec(ModelSpec):
    """A wide model.

    Attributes:
        scale: Factor of all weights.
    """

    family: ClassVar[str] = "wide"

    scale: float = 1.0


class WideLayers(nn.Module):
    """All of a wide model but its tables: what it computes, as a formula."""

    def __init__(self, spec: WideSpec, features: Features) -> None:
        super().__init__()
        if not spec.scale:
            raise RequestError("A wide model with scale = 0 learns nothing: use another number.")
        self.scale = spec.scale
        self.vectors = FieldVectors(spec, features)  # the dense features as one more vector beside the embeddings
        self.output = task_heads(spec, self.vectors.width, features.outputs)  # a score for each label, in float32

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, fields, dim]` to `[batch]` or `[batch, tasks]` logits in float32."""
        logits = self.output(self.vectors(dense, pooled).flatten(1))
        return self.scale * logits.squeeze(1)  # removes the axis of a single task; several tasks keep it


WIDE = Family(spec=WideSpec, layers=WideLayers, ranges={"scale": (0.5, 1.0, 2.0)})
