"""Interactions of the vectors of a sample.

Modules of DHEN map `[batch, m, dim]`, the m vectors of a sample, to `[batch, l, dim]`. Interactions of DLRM all have
one output for each pair of vectors, so that they are interchangeable: `dlrm_interaction`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.layers import DotInteraction
from shunter.models.output_layer import full_precision
from shunter.models.spec import nearest

Interaction = Literal["dot", "attention", "cross", "linear", "convolution"]
DlrmInteraction = Literal["dot", "linear", "fm", "cross", "attention"]
KERNEL = 3  # side of the convolution's window


@dataclass(frozen=True, kw_only=True)
class InteractionOptions:
    """Options of an interaction module of DHEN.

    Attributes:
        embedding_dim: Width of the vectors that interact.
        interaction_vectors: Number of output vectors of the module.
        attention_heads: Number of heads of the self-attention, a divisor of the width.
        convolution_channels: Number of filters of the convolution.
    """

    embedding_dim: int
    interaction_vectors: int
    attention_heads: int = 2
    convolution_channels: int = 4


class Mix(nn.Linear):
    """Linear map that mixes the vectors of a sample, the same in each dimension: W_m of DHEN (arXiv 2203.11014)."""

    def __init__(self, vectors: int, mixed: int) -> None:
        super().__init__(vectors, mixed, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """Map `[batch, vectors, dim]` to `[batch, mixed, dim]`."""
        return super().forward(input.transpose(1, 2)).transpose(1, 2)


class Dot(nn.Module):
    """`u = W [dot products of all pairs, X]`: the interaction of DLRM, mapped back to vectors."""

    def __init__(self, options: InteractionOptions, vectors: int) -> None:
        super().__init__()
        self.interaction = DotInteraction(vectors)
        self.shape = (options.interaction_vectors, options.embedding_dim)
        width = self.interaction.count + vectors * options.embedding_dim
        self.project = nn.Linear(width, options.interaction_vectors * options.embedding_dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, m, dim]` to `[batch, l, dim]`."""
        joined = torch.cat([self.interaction(vectors), vectors.flatten(1)], dim=1)
        return self.project(joined).unflatten(1, self.shape)


class Attention(nn.Module):
    """`u = W TransformerEncoderLayer(X)` (Vaswani et al., 2017), without positions and dropout.

    The products are computed explicitly instead of by torch's fused attention, so that their cost can be counted; a
    sample has few vectors.
    """

    def __init__(self, options: InteractionOptions, vectors: int) -> None:
        super().__init__()
        dim = options.embedding_dim
        self.heads = options.attention_heads
        self.project_in, self.project_out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.feed_forward = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.mix = Mix(vectors, options.interaction_vectors)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, m, dim]` to `[batch, l, dim]`."""
        return self.mix(self.encode(vectors))

    def encode(self, vectors: Tensor) -> Tensor:
        """Apply the encoder layer: `[batch, m, dim]` to the same shape."""
        attended = self.norms[0](vectors + self._attend(vectors))
        return self.norms[1](attended + self.feed_forward(attended))

    def _attend(self, vectors: Tensor) -> Tensor:
        parts = self.project_in(vectors).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.flatten(1, 2)  # each [batch * heads, m, dim / heads]
        scores = torch.bmm(query, key.transpose(1, 2)) * query.shape[2] ** -0.5
        seen = torch.bmm(scores.softmax(2), value).unflatten(0, (-1, self.heads))
        return self.project_out(seen.transpose(1, 2).flatten(2))


class Cross(nn.Module):
    """`u = W (X * (C vec(X) + b))`: a cross layer of DCN-V2 without its skip, since the layer around it has one."""

    def __init__(self, options: InteractionOptions, vectors: int) -> None:
        super().__init__()
        width = vectors * options.embedding_dim
        self.cross = nn.Linear(width, width)
        self.mix = Mix(vectors, options.interaction_vectors)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, m, dim]` to `[batch, l, dim]`."""
        return self.mix(vectors * self.cross(vectors.flatten(1)).view_as(vectors))


class Convolution(nn.Module):
    """`u = W Conv2d(X)`: 3 x 3 filters over the m x dim matrix of the vectors, joined into one channel.

    The convolution is written as a matrix product over unfolded windows, one for the batch, which can be counted.
    """

    def __init__(self, options: InteractionOptions, vectors: int) -> None:
        super().__init__()
        self.filters = nn.Linear(KERNEL**2, options.convolution_channels)
        self.join = nn.Linear(options.convolution_channels, 1)
        self.mix = Mix(vectors, options.interaction_vectors)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, m, dim]` to `[batch, l, dim]`."""
        windows = nn.functional.unfold(vectors.unsqueeze(1), KERNEL, padding=KERNEL // 2).transpose(1, 2)
        return self.mix(self.join(self.filters(windows).relu()).view(vectors.shape))


class LinearMix(Mix):
    """`u = W X`: linear mix of the vectors."""

    def __init__(self, options: InteractionOptions, vectors: int) -> None:
        super().__init__(vectors, options.interaction_vectors)


INTERACTIONS: dict[Interaction, Callable[[InteractionOptions, int], nn.Module]] = {
    "dot": Dot,
    "attention": Attention,
    "cross": Cross,
    "linear": LinearMix,
    "convolution": Convolution,
}


class PairNumbers(nn.Module):
    """Interaction module of DHEN that replaces the dot products of a DLRM: one output for each pair of vectors.

    The module outputs the fewest vectors that contain one number for each pair; surplus numbers are dropped. If a
    single vector is wider than the number of pairs, a linear map reduces it.

    Args:
        dim: Width of the vectors.
        vectors: Number of vectors of a sample.
        name: Name of the module.
    """

    def __init__(self, dim: int, vectors: int, name: Interaction) -> None:
        super().__init__()
        self.count = pair_count(vectors)
        options = InteractionOptions(embedding_dim=dim, interaction_vectors=-(-self.count // dim))
        self.module = INTERACTIONS[name](options, vectors)
        self.project = nn.Linear(dim, self.count) if self.count < dim else nn.Identity()

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, vectors, dim]` to `[batch, pairs]` in float32."""
        return self.project(self.module(vectors).flatten(1))[:, : self.count].float()


class FactorisationMachine(nn.Module):
    """`u = W sum_{i<j} v_i * v_j`: the second-order term of a factorisation machine, before the sum over factors.

    The products are elementwise, and summed by Rendle's identity (2010, lemma 3.1):
    `((sum_i v_i)^2 - sum_i v_i^2) / 2`, which is linear in the number of vectors. A linear map then gives one output
    for each pair.

    Args:
        dim: Width of the vectors.
        vectors: Number of vectors of a sample.
    """

    def __init__(self, dim: int, vectors: int) -> None:
        super().__init__()
        self.project = nn.Linear(dim, pair_count(vectors))

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, vectors, dim]` to `[batch, pairs]` in float32."""
        with full_precision(vectors):
            machine = (vectors.sum(1).square() - vectors.square().sum(1)) / 2
        return self.project(machine).float()


def pair_count(vectors: int) -> int:
    """Return the number of pairs of vectors, which is the number of outputs of every interaction of DLRM."""
    return vectors * (vectors - 1) // 2


DLRM_INTERACTIONS: dict[DlrmInteraction, Callable[[int, int], nn.Module]] = {
    "dot": lambda _, vectors: DotInteraction(vectors),
    "linear": partial(PairNumbers, name="linear"),
    "fm": FactorisationMachine,
    "cross": partial(PairNumbers, name="cross"),
    "attention": partial(PairNumbers, name="attention"),
}


def dlrm_interaction(name: DlrmInteraction, dim: int, vectors: int) -> nn.Module:
    """Build an interaction of DLRM, `[batch, vectors, dim]` to `[batch, pairs]` in float32.

    A single vector has no pair, so all interactions are the same then.

    Args:
        name: Name of the interaction.
        dim: Width of the vectors.
        vectors: Number of vectors of a sample.

    Raises:
        RequestError: The interaction is unknown.
    """
    if name not in DLRM_INTERACTIONS:
        raise RequestError(f"Unknown interaction {name!r} of the model dlrm: {nearest(name, DLRM_INTERACTIONS)}.")
    return DLRM_INTERACTIONS[name](dim, vectors) if vectors > 1 else DotInteraction(vectors)
