"""FinalMLP: two MLPs with different feature gates, fused by bilinear products (Mao et al., AAAI 2023, 2304.00902)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.layers import FieldVectors, hidden_layers, mlp
from shunter.models.output_layer import OutputLayer
from shunter.models.spec import Features, ModelSpec, nearest


@dataclass(frozen=True, kw_only=True)
class FinalmlpSpec(ModelSpec):
    """Configuration of FinalMLP; `top_widths` are those of the first stream.

    Attributes:
        second_widths: Hidden widths of the second stream; if empty, those of the first.
        gate_widths: Hidden widths of the MLP that gates the input of a stream.
        first_gate: Names of the fields that gate the input of the first stream; if empty, the gate is constant.
        second_gate: Names of the fields that gate the input of the second stream; if empty, the gate is constant.
        fusion_heads: Number of heads of the bilinear products; divides the last widths of both streams.
    """

    family: ClassVar[str] = "finalmlp"

    second_widths: tuple[int, ...] = ()
    gate_widths: tuple[int, ...] = (64,)
    first_gate: tuple[str, ...] = ()
    second_gate: tuple[str, ...] = ()
    fusion_heads: int = 1


class FeatureGate(nn.Module):
    """Stream-specific feature selection: `h = 2 sigmoid(gate(x)) * e`, elementwise.

    The gate multiplies each number of the embeddings by a factor between 0 and 2. An MLP computes the factors from the
    context x, which is the vectors of some fields, such as the user's. Without context fields the factors are one
    learned vector for all samples, since an MLP over a learned vector could express no more.

    Args:
        width: Width of the input, the concatenated vectors.
        dim: Width of one vector.
        context: Positions of the context vectors.
        hidden_widths: Hidden widths of the gate's MLP.
    """

    def __init__(self, width: int, dim: int, context: Sequence[int], hidden_widths: Sequence[int]) -> None:
        super().__init__()
        self.context = tuple(context)
        widths = (dim * len(context), *hidden_widths)
        self.gate = nn.Sequential(mlp(widths, last_relu=True), nn.Linear(widths[-1], width)) if context else None
        self.learned = None if context else nn.Parameter(torch.zeros(width))

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, vectors, dim]` to `[batch, vectors * dim]`."""
        if self.gate is None:
            assert self.learned is not None, "a gate without context has a vector of its own"
            return 2 * torch.sigmoid(self.learned) * vectors.flatten(1)
        context = torch.cat([vectors[:, position] for position in self.context], dim=1)
        return 2 * torch.sigmoid(self.gate(context).float()) * vectors.flatten(1)


class BilinearFusion(nn.Module):
    """Stream-level fusion by multi-head bilinear products: `b + w_1^T o_1 + w_2^T o_2 + sum_h o_1h^T W_h o_2h`.

    Both outputs are split into heads, and only heads of the same index are multiplied. This divides the cost by the
    number of heads.

    Args:
        first: Width of the first stream.
        second: Width of the second stream.
        heads: Number of heads; divides both widths.

    Attributes:
        bilinear: `[heads, first / heads, second / heads]`, initially small, since many products are added.
    """

    def __init__(self, first: int, second: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = OutputLayer(first, 1), OutputLayer(second, 1)
        weights = torch.empty(heads, first // heads, second // heads)
        if (
            not weights.is_meta
        ):  # random numbers on the meta device would load torch's compiler, as in `normal_parameter`
            nn.init.normal_(weights, std=(2 / weights.numel()) ** 0.5)
        self.bilinear = nn.Parameter(weights)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Fuse two streams, `[batch, first]` and `[batch, second]`, into one logit per sample, `[batch]` in float32."""
        parts = torch.bmm(self._by_head(first), self.bilinear).float() * self._by_head(second).float()
        return (self.first(first) + self.second(second)).squeeze(1) + parts.sum((0, 2))

    def _by_head(self, output: Tensor) -> Tensor:
        """Map `[batch, width]` to `[heads, batch, width / heads]`."""
        return output.unflatten(1, (self.heads, -1)).transpose(0, 1)


class TaskFusions(nn.Module):
    """Fusions for several tasks: each fuses the streams itself, optionally after a tower above each stream.

    Args:
        spec: Number of heads, and width of a task's tower.
        first: Width of the first stream.
        second: Width of the second stream.
        tasks: Number of tasks.
    """

    def __init__(self, spec: FinalmlpSpec, first: int, second: int, tasks: int) -> None:
        super().__init__()
        width = spec.task_tower_width
        self.towers = None
        if width is not None:
            self.towers = nn.ModuleList(
                nn.ModuleList(hidden_layers(spec, last, (width,)) for last in (first, second)) for _ in range(tasks)
            )
            first = second = width
        self.fusions = nn.ModuleList(BilinearFusion(first, second, spec.fusion_heads) for _ in range(tasks))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Map `[batch, first]` and `[batch, second]` to `[batch, tasks]` in float32."""
        pairs = [(first, second)] * len(self.fusions)
        if self.towers is not None:
            pairs = [(own(first), other(second)) for own, other in self.towers]  # pyright: ignore[reportGeneralTypeIssues]
        return torch.stack([fusion(*pair) for fusion, pair in zip(self.fusions, pairs, strict=True)], dim=1)


class FinalmlpLayers(nn.Module):
    """All layers of FinalMLP above the tables. Several tasks share gates and streams, and each has its own fusion.

    Raises:
        RequestError: A gate names an unknown field, or the heads do not divide the widths of the streams.
    """

    def __init__(self, spec: FinalmlpSpec, features: Features) -> None:
        super().__init__()
        self.vectors = FieldVectors(spec, features)
        width, dim, first = self.vectors.width, spec.embedding_dim, spec.top_widths
        second = spec.second_widths or first
        lasts = [widths[-1] if widths else width for widths in (first, second)]
        _check_heads(spec, lasts)
        gates = (spec.first_gate, spec.second_gate)
        contexts = [_positions(names, features, offset=self.vectors.first_table) for names in gates]
        self.gates = nn.ModuleList(FeatureGate(width, dim, context, spec.gate_widths) for context in contexts)
        self.streams = nn.ModuleList(hidden_layers(spec, width, widths) for widths in (first, second))
        tasks = features.outputs
        if tasks == 1:
            self.fusion = BilinearFusion(lasts[0], lasts[1], spec.fusion_heads)
        else:
            self.fusion = TaskFusions(spec, lasts[0], lasts[1], tasks)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        vectors = self.vectors(dense, pooled)
        first, second = (stream(gate(vectors)) for gate, stream in zip(self.gates, self.streams, strict=True))
        return self.fusion(first, second)


def _check_heads(spec: FinalmlpSpec, lasts: Sequence[int]) -> None:
    fused = (spec.task_tower_width,) * 2 if spec.task_tower_width else lasts
    if spec.fusion_heads < 1 or any(width % spec.fusion_heads for width in fused):
        whose = "the width of a task's tower" if spec.task_tower_width else "the streams' last widths"
        raise RequestError(
            f"fusion_heads = {spec.fusion_heads} must divide {whose}, {fused[0]} and {fused[1]}: use a "
            "number that divides both."
        )


def _positions(names: Sequence[str], features: Features, *, offset: int) -> list[int]:
    """Return the positions of the vectors of some fields among all vectors."""
    fields = [field.name for field in features.categorical]
    for name in names:
        if name not in fields:
            raise RequestError(
                f"The option of a feature gate names the unknown field {name!r}: {nearest(name, fields)}."
            )
    return [offset + fields.index(name) for name in names]


FINALMLP = Family(spec=FinalmlpSpec, layers=FinalmlpLayers, ranges={"fusion_heads": (1, 2, 4, 8)})
