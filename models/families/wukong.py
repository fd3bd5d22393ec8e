"""Wukong: stacked factorisation machines; each layer doubles the interaction order (Zhang et al., arXiv 2403.02545).

Each layer takes `[batch, n, dim]`, the n vectors of a sample X. Section 3.2 of the paper:

    FM(X)  = X (X^T Y)                                n x k: products of all pairs, by k learned projections Y of n
    FMB(X) = reshape(MLP(LN(flatten(FM(X)))))         the vectors of the factorisation machine block
    LCB(X) = W X                                      the vectors of the linear compression block
    layer  = LN([FMB(X), LCB(X)] + X)                 X is mapped linearly if the number of vectors changes
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.interactions import Mix
from shunter.models.layers import FieldVectors, mlp, normal_parameter, scoring_mlp
from shunter.models.output_layer import full_precision
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class WukongSpec(ModelSpec):
    """Configuration of Wukong; `top_widths` are those of the MLP above its layers.

    Attributes:
        interaction_layers: Number of layers; l layers reach interactions of order 2^l.
        machine_vectors: Output vectors of the factorisation machine block of a layer.
        linear_vectors: Output vectors of the linear compression block of a layer.
        machine_rank: Number k of projections, which replace the n columns of the products of all pairs.
        machine_widths: Hidden widths of the factorisation machine block's MLP.
    """

    family: ClassVar[str] = "wukong"

    interaction_layers: int = 2
    machine_vectors: int = 8
    linear_vectors: int = 8
    machine_rank: int = 8
    machine_widths: tuple[int, ...] = (128,)


class MachineBlock(nn.Module):
    """Factorisation machine block (FMB).

    Args:
        spec: Rank, MLP and output vectors of the block.
        vectors: Number of input vectors.
    """

    def __init__(self, spec: WukongSpec, vectors: int) -> None:
        super().__init__()
        self.projections = normal_parameter(vectors, spec.machine_rank, deviation=vectors**-0.5)
        width = vectors * spec.machine_rank
        self.norm = nn.LayerNorm(width)
        self.network = mlp((width, *spec.machine_widths, spec.machine_vectors * spec.embedding_dim))
        self.shape = (spec.machine_vectors, spec.embedding_dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, n, dim]` to `[batch, machine vectors, dim]`."""
        with full_precision(vectors):  # products of products would lose too much precision in bfloat16
            products = torch.bmm(vectors, vectors.transpose(1, 2) @ self.projections)
        return self.network(self.norm(products.flatten(1))).unflatten(1, self.shape)


class WukongLayer(nn.Module):
    """Layer that adds the outputs of both blocks to its input.

    Args:
        spec: The blocks.
        vectors: Number of input vectors.

    Attributes:
        count: Number of output vectors.
    """

    def __init__(self, spec: WukongSpec, vectors: int) -> None:
        super().__init__()
        self.count = spec.machine_vectors + spec.linear_vectors
        self.machine = MachineBlock(spec, vectors)
        self.linear = Mix(vectors, spec.linear_vectors)
        self.shortcut = nn.Identity() if self.count == vectors else Mix(vectors, self.count)
        self.norm = nn.LayerNorm(spec.embedding_dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, n, dim]` to `[batch, count, dim]` in float32."""
        together = torch.cat([self.machine(vectors).float(), self.linear(vectors).float()], dim=1)
        return self.norm(together + self.shortcut(vectors).float())


class WukongLayers(nn.Module):
    """All layers of Wukong above the tables.

    Raises:
        RequestError: A layer would have no output vectors, or the rank is below 1.
    """

    def __init__(self, spec: WukongSpec, features: Features) -> None:
        super().__init__()
        for option in ("interaction_layers", "machine_vectors", "linear_vectors", "machine_rank"):
            if getattr(spec, option) < 1:
                raise RequestError(
                    f"The option {option} of the model wukong is {getattr(spec, option)}: use at least 1."
                )
        self.vectors = FieldVectors(spec, features)
        count, layers = self.vectors.count, []
        for _ in range(spec.interaction_layers):
            layers.append(WukongLayer(spec, count))
            count = layers[-1].count
        self.stack = nn.Sequential(*layers)
        self.top = scoring_mlp(spec, count * spec.embedding_dim, features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        return self.top(self.stack(self.vectors(dense, pooled)).flatten(1)).squeeze(1)


WUKONG = Family(
    spec=WukongSpec,
    layers=WukongLayers,
    ranges={
        "interaction_layers": (1, 2, 3, 4),
        "machine_vectors": (4, 8, 16),
        "linear_vectors": (4, 8, 16),
        "machine_rank": (4, 8, 16),
    },
)
