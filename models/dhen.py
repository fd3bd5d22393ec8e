"""DHEN: layers that are ensembles of different interactions, stacked (Zhang et al., 2022, arXiv 2203.11014).

Each module of a layer takes `[batch, m, dim]`, the m vectors of a sample, and gives `[batch, l, dim]`. As the modules
of one layer differ, N layers of k modules hold k^N compositions of interactions. The order of the vectors is that of
the features of the data, which the convolution depends on.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from models.layers import DotInteraction, FieldVectors, scoring_mlp
from models.spec import Features, Interaction, ModelSpec
from shunter.errors import RequestError

KERNEL = 3  # side of the convolution's window


class Mix(nn.Linear):
    """A linear map over the vectors, the same for each of their numbers: W_m of the paper."""

    def __init__(self, vectors: int, mixed: int) -> None:
        super().__init__(vectors, mixed, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """`[batch, vectors, dim]` to `[batch, mixed, dim]`."""
        return super().forward(input.transpose(1, 2)).transpose(1, 2)


class Dot(nn.Module):
    """`u = W [dot products of all pairs, X]`: the interaction of DLRM, brought back to vectors."""

    def __init__(self, spec: ModelSpec, vectors: int) -> None:
        super().__init__()
        self.interaction = DotInteraction(vectors)
        self.shape = (spec.interaction_vectors, spec.embedding_dim)
        width = self.interaction.count + vectors * spec.embedding_dim
        self.project = nn.Linear(width, spec.interaction_vectors * spec.embedding_dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """`[batch, m, dim]` to `[batch, l, dim]`."""
        joined = torch.cat([self.interaction(vectors), vectors.flatten(1)], dim=1)
        return self.project(joined).unflatten(1, self.shape)


class Attention(nn.Module):
    """`u = W TransformerEncoderLayer(X)` (Vaswani et al., 2017), without positions and dropout.

    The products are written out, and not left to torch's fused attention, so that what they cost can be counted; the
    vectors of a sample are few.
    """

    def __init__(self, spec: ModelSpec, vectors: int) -> None:
        super().__init__()
        dim = spec.embedding_dim
        self.heads = spec.attention_heads
        self.project_in, self.project_out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.feed_forward = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.mix = Mix(vectors, spec.interaction_vectors)

    def forward(self, vectors: Tensor) -> Tensor:
        """`[batch, m, dim]` to `[batch, l, dim]`."""
        return self.mix(self.encode(vectors))

    def encode(self, vectors: Tensor) -> Tensor:
        """The encoder layer: `[batch, m, dim]` to the same."""
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

    def __init__(self, spec: ModelSpec, vectors: int) -> None:
        super().__init__()
        width = vectors * spec.embedding_dim
        self.cross = nn.Linear(width, width)
        self.mix = Mix(vectors, spec.interaction_vectors)

    def forward(self, vectors: Tensor) -> Tensor:
        """`[batch, m, dim]` to `[batch, l, dim]`."""
        return self.mix(vectors * self.cross(vectors.flatten(1)).view_as(vectors))


class Convolution(nn.Module):
    """`u = W Conv2d(X)`: the vectors as a picture of m x dim, filters of 3 x 3, and one channel made of them.

    Written as the matrix product that it is over unfolded windows: one for the batch, which can be counted.
    """

    def __init__(self, spec: ModelSpec, vectors: int) -> None:
        super().__init__()
        self.filters = nn.Linear(KERNEL**2, spec.convolution_channels)
        self.join = nn.Linear(spec.convolution_channels, 1)
        self.mix = Mix(vectors, spec.interaction_vectors)

    def forward(self, vectors: Tensor) -> Tensor:
        """`[batch, m, dim]` to `[batch, l, dim]`."""
        windows = nn.functional.unfold(vectors.unsqueeze(1), KERNEL, padding=KERNEL // 2).transpose(1, 2)
        return self.mix(self.join(self.filters(windows).relu()).view(vectors.shape))


class LinearMix(Mix):
    """`u = W X`."""

    def __init__(self, spec: ModelSpec, vectors: int) -> None:
        super().__init__(vectors, spec.interaction_vectors)


INTERACTIONS: dict[Interaction, Callable[[ModelSpec, int], nn.Module]] = {
    "dot": Dot,
    "attention": Attention,
    "cross": Cross,
    "linear": LinearMix,
    "convolution": Convolution,
}


class DhenLayer(nn.Module):
    """`X' = LayerNorm(Ensemble_i(Interaction_i(X)) + ShortCut(X))`, normalised over the numbers of each vector.

    The shortcut is X itself where the number of vectors stays, else a linear map over them.

    Args:
        spec: the modules and their ensemble: `concat` keeps all their vectors, `sum` adds them, `weighted` adds them
            with learned weights, one for each module.
        vectors: that come in.

    Attributes:
        count: vectors that go out.
    """

    def __init__(self, spec: ModelSpec, vectors: int) -> None:
        super().__init__()
        self.interactions = nn.ModuleDict({name: INTERACTIONS[name](spec, vectors) for name in spec.interactions})
        modules = len(self.interactions)
        self.is_concat = spec.interaction_ensemble == "concat"
        self.count = spec.interaction_vectors * (modules if self.is_concat else 1)
        self.weights = nn.Parameter(torch.ones(modules)) if spec.interaction_ensemble == "weighted" else None
        self.shortcut = nn.Identity() if self.count == vectors else Mix(vectors, self.count)
        self.norm = nn.LayerNorm(spec.embedding_dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """`[batch, vectors, dim]` to `[batch, count, dim]` in float32."""
        seen = [module(vectors).float() for module in self.interactions.values()]
        if self.weights is not None:
            seen = [weight * one for weight, one in zip(self.weights, seen, strict=True)]
        together = torch.cat(seen, dim=1) if self.is_concat else torch.stack(seen).sum(0)
        return self.norm((together + self.shortcut(vectors)).float())


class DhenLayers(nn.Module):
    """All of a DHEN but its tables: the feature layer, `interaction_layers` layers, and an MLP over what they give.

    Args:
        spec: the modules, their ensemble and the depth; `top_widths` of the MLP.
        features: the input.

    Raises:
        RequestError: a module is unknown or named twice, there is none, or the heads do not divide the width.
    """

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        _check(spec)
        self.vectors = FieldVectors(spec, features)
        count, layers = self.vectors.count, []
        for _ in range(spec.interaction_layers):
            layers.append(DhenLayer(spec, count))
            count = layers[-1].count
        self.stack = nn.Sequential(*layers)
        self.top = scoring_mlp(spec, count * spec.embedding_dim, features.outputs)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, tables, dim]` to logits as `models.registry.FAMILIES` says."""
        return self.top(self.stack(self.vectors(dense, pooled)).flatten(1)).squeeze(1)


def _check(spec: ModelSpec) -> None:
    names = spec.interactions
    if not names or len(set(names)) < len(names) or not set(names) <= INTERACTIONS.keys():
        raise RequestError(
            f"A layer of dhen takes one or more interactions, each once, not {', '.join(names) or 'none'}: "
            f"choose from {', '.join(INTERACTIONS)}."
        )
    if "attention" in names and (spec.attention_heads < 1 or spec.embedding_dim % spec.attention_heads):
        raise RequestError(
            f"The option attention_heads = {spec.attention_heads} does not divide the embedding width "
            f"{spec.embedding_dim}: use a number that does."
        )
