"""DHEN: layers that are ensembles of different interactions, stacked (Zhang et al., 2022, arXiv 2203.11014).

Each module of a layer takes `[batch, m, dim]`, the m vectors of a sample, and gives `[batch, l, dim]`. As the modules
of one layer differ, N layers of k modules hold k^N compositions of interactions. The order of the vectors is that of
the features of the data, which the convolution depends on.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.interactions import INTERACTIONS, Interaction, Mix
from shunter.models.layers import FieldVectors, scoring_mlp
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class DhenSpec(ModelSpec):
    """A DHEN; `top_widths` are those of the MLP above its layers.

    Attributes:
        interactions: Modules of every layer, each name once.
        interaction_layers: Number of layers.
        interaction_ensemble: How the modules of a layer become one: beside each other, added, or added with learned
            weights.
        interaction_vectors: Vectors that each module of a layer gives.
        attention_heads: Heads of the self-attention; divides `embedding_dim`.
        convolution_channels: Filters of the convolution.
    """

    family: ClassVar[str] = "dhen"

    interactions: tuple[Interaction, ...] = ("dot", "linear")
    interaction_layers: int = 2
    interaction_ensemble: Literal["concat", "sum", "weighted"] = "concat"
    interaction_vectors: int = 8
    attention_heads: int = 2
    convolution_channels: int = 4


class DhenLayer(nn.Module):
    """`X' = LayerNorm(Ensemble_i(Interaction_i(X)) + ShortCut(X))`, normalised over the numbers of each vector.

    The shortcut is X itself where the number of vectors stays, else a linear map over them.

    Args:
        spec: The modules and their ensemble: `concat` keeps all their vectors, `sum` adds them, `weighted` adds them
            with learned weights, one for each module.
        vectors: Number of vectors that come in.

    Attributes:
        count: Number of vectors that go out.
    """

    def __init__(self, spec: DhenSpec, vectors: int) -> None:
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
        spec: The modules, their ensemble and the depth, and widths of the MLP.
        features: Features that come in.

    Raises:
        RequestError: A module is unknown or named twice, there is none, or the heads do not divide the width.
    """

    def __init__(self, spec: DhenSpec, features: Features) -> None:
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
        """`[batch, dense features]` and `[batch, tables, dim]` to logits as `models.families.family.Family` says."""
        return self.top(self.stack(self.vectors(dense, pooled)).flatten(1)).squeeze(1)


def _check(spec: DhenSpec) -> None:
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


DHEN = Family(
    spec=DhenSpec,
    layers=DhenLayers,
    ranges={
        "interactions": (
            ("dot", "linear"),
            ("attention", "linear"),
            ("cross", "linear"),
            ("dot", "cross", "linear"),
            ("linear", "convolution"),
        ),
        "interaction_layers": (1, 2, 3),
        "interaction_ensemble": ("concat", "sum", "weighted"),
    },
)
