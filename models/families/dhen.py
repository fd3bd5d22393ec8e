"""DHEN: stacked layers that are ensembles of different interactions (Zhang et al., 2022, arXiv 2203.11014).

Each module of a layer maps `[batch, m, dim]`, the m vectors of a sample, to `[batch, l, dim]`. As the modules of one
layer differ, N layers of k modules contain k^N compositions of interactions. The vectors are in the order of the
features of the data, on which the convolution depends.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.interactions import INTERACTIONS, Interaction, InteractionOptions, Mix
from shunter.models.layers import FieldVectors, scoring_mlp
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class DhenSpec(ModelSpec):
    """Configuration of DHEN; `top_widths` are those of the MLP above its layers.

    Attributes:
        interactions: Modules of every layer, each name once.
        interaction_layers: Number of layers.
        interaction_ensemble: Combination of the modules of a layer: concatenation, sum, or sum with learned weights.
        interaction_vectors: Number of output vectors of each module of a layer.
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

    The shortcut is X itself if the number of vectors is unchanged, else a linear map over the vectors.

    Args:
        spec: The modules and their ensemble: `concat` concatenates their vectors, `sum` adds them, `weighted` adds them
            with learned weights, one for each module.
        vectors: Number of input vectors.

    Attributes:
        count: Number of output vectors.
    """

    def __init__(self, spec: DhenSpec, vectors: int) -> None:
        super().__init__()
        options = InteractionOptions(
            embedding_dim=spec.embedding_dim,
            interaction_vectors=spec.interaction_vectors,
            attention_heads=spec.attention_heads,
            convolution_channels=spec.convolution_channels,
        )
        self.interactions = nn.ModuleDict({name: INTERACTIONS[name](options, vectors) for name in spec.interactions})
        modules = len(self.interactions)
        self.is_concat = spec.interaction_ensemble == "concat"
        self.count = spec.interaction_vectors * (modules if self.is_concat else 1)
        self.weights = nn.Parameter(torch.ones(modules)) if spec.interaction_ensemble == "weighted" else None
        self.shortcut = nn.Identity() if self.count == vectors else Mix(vectors, self.count)
        self.norm = nn.LayerNorm(spec.embedding_dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map `[batch, vectors, dim]` to `[batch, count, dim]` in float32."""
        seen = [module(vectors).float() for module in self.interactions.values()]
        if self.weights is not None:
            seen = [weight * one for weight, one in zip(self.weights, seen, strict=True)]
        together = torch.cat(seen, dim=1) if self.is_concat else torch.stack(seen).sum(0)
        return self.norm((together + self.shortcut(vectors)).float())


class DhenLayers(nn.Module):
    """All layers of DHEN above the tables: the feature layer, `interaction_layers` layers, and an MLP above them.

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
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        return self.top(self.stack(self.vectors(dense, pooled)).flatten(1)).squeeze(1)


def _check(spec: DhenSpec) -> None:
    names = spec.interactions
    if not names or len(set(names)) < len(names) or not set(names) <= INTERACTIONS.keys():
        raise RequestError(
            "A layer of the model dhen takes one or more different interactions, not "
            f"{', '.join(names) or 'none'}: choose from {', '.join(INTERACTIONS)}."
        )
    if "attention" in names and (spec.attention_heads < 1 or spec.embedding_dim % spec.attention_heads):
        raise RequestError(
            f"The embedding width must be a multiple of attention_heads = {spec.attention_heads}, but is "
            f"{spec.embedding_dim}: change one of them."
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
