"""AutoInt: self-attention among the fields of a sample (Song et al., CIKM 2019, arXiv 1810.11921)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, hidden_layers, task_heads
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class AutointSpec(ModelSpec):
    """Configuration of AutoInt; `top_widths` are those of the parallel deep network (AutoInt+), empty for none.

    Attributes:
        attention_layers: Number of interacting layers, each of which raises the order of the interactions.
        attention_width: Width of the output vectors of a layer, for all heads together.
        attention_heads: Number of heads; divides `attention_width`.
    """

    family: ClassVar[str] = "autoint"

    attention_layers: int = 3
    attention_width: int = 32
    attention_heads: int = 2


class InteractingLayer(nn.Module):
    """Interacting layer (equations 5 to 8 of the paper): attention over all fields, plus a residual term.

    `e'_m = relu(concat_h sum_k softmax_k(<Q_h e_m, K_h e_k>) V_h e_k + R e_m)`, without scaling and biases.

    Args:
        inputs: Width of the input vectors.
        outputs: Width of the output vectors.
        heads: Number of heads h; divides `outputs`.
    """

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(inputs, 3 * outputs, bias=False)
        self.residual = nn.Linear(inputs, outputs, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, vectors, inputs]` to `[batch, vectors, outputs]` in float32."""
        parts = self.project(vectors).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.flatten(1, 2)  # each [batch * heads, vectors, outputs / heads]
        weights = torch.bmm(query, key.transpose(1, 2)).softmax(2)
        seen = torch.bmm(weights, value).unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
        return (seen + self.residual(vectors)).float().relu()


class AutointLayers(nn.Module):
    """All layers of AutoInt above the tables: interacting layers, and a deep network over the same vectors.

    A last linear layer reads both and adds their logits.

    Raises:
        RequestError: There is no interacting layer, or the heads do not divide its width.
    """

    def __init__(self, spec: AutointSpec, features: Features) -> None:
        super().__init__()
        _check(spec)
        self.vectors = FieldVectors(spec, features)
        widths = (spec.embedding_dim, *(spec.attention_width,) * spec.attention_layers)
        self.attention = nn.Sequential(
            *(InteractingLayer(*sizes, heads=spec.attention_heads) for sizes in pairwise(widths))
        )
        self.deep = hidden_layers(spec, self.vectors.width, spec.top_widths) if spec.top_widths else None
        joined = self.vectors.count * spec.attention_width + (spec.top_widths[-1] if spec.top_widths else 0)
        self.output = task_heads(spec, joined, features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        vectors = self.vectors(dense, pooled)
        attended = self.attention(vectors).flatten(1)
        if self.deep is not None:
            attended = torch.cat([attended, self.deep(vectors.flatten(1)).float()], dim=1)
        return self.output(attended).squeeze(1)


def _check(spec: AutointSpec) -> None:
    if spec.attention_layers < 1:
        raise RequestError(
            f"A model autoint with attention_layers = {spec.attention_layers} has no interactions: use at "
            "least 1, or family 'dnn'."
        )
    if spec.attention_heads < 1 or spec.attention_width < 1 or spec.attention_width % spec.attention_heads:
        raise RequestError(
            f"attention_width must be a multiple of attention_heads = {spec.attention_heads}, but is "
            f"{spec.attention_width}: change one of them."
        )


AUTOINT = Family(
    spec=AutointSpec,
    layers=AutointLayers,
    ranges={"attention_layers": (1, 2, 3, 4), "attention_width": (16, 32, 64), "attention_heads": (1, 2, 4)},
)
