"""HSTU: attention without a softmax over a history with the candidate (Zhai et al., ICML 2024, arXiv 2402.17152).

The weights of a softmax sum to one, which hides how many ids of a history are related to the candidate. In HSTU each
weight is independent, `SiLU(q k + bias) / n`, and the result is normalised and gated (equations 1 to 3).

The bias is a number for each head and each distance between two positions. As in ALiBi (Press et al., ICLR 2022) the
bias initially prefers near positions, since a random bias would hide the order. A history consists of ids only.
The paper's bias for the time between two ids, and its alternation of ids and user actions, are therefore left out.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.dropout import Dropout
from shunter.models.families.family import Family
from shunter.models.families.histories import HistoryLayers, candidates, check_histories, is_filled
from shunter.models.spec import Features, ModelSpec

NEAREST = 2.0  # initial bias of the nearest position; for the first head it halves with each position


@dataclass(frozen=True, kw_only=True)
class HstuSpec(ModelSpec):
    """Configuration of hierarchical sequential transduction units; `top_widths` are those of the MLP above.

    `dropout` applies to the units too.

    Attributes:
        hstu_layers: Number of layers.
        attention_heads: Heads of each layer.
        query_width: Width of the queries and keys of a head; None: `embedding_dim` over the heads, rounded up.
        value_width: Width of the values and gates of a head; None: `embedding_dim` over the heads, rounded up.
        relative_bias: Whether a learned bias by the distance of two positions is added to their attention score.
    """

    family: ClassVar[str] = "hstu"

    hstu_layers: int = 2
    attention_heads: int = 2
    query_width: int | None = None
    value_width: int | None = None
    relative_bias: bool = True

    @property
    def head_widths(self) -> tuple[int, int]:
        """Widths of a head's queries and values."""
        width = -(-self.embedding_dim // self.attention_heads)
        return self.query_width or width, self.value_width or width


class HstuLayer(nn.Module):
    """`x + W_2 (norm(A v) * u)` with `u, v, q, k = SiLU(W_1 norm(x))` and `A = SiLU(q k + bias) / n`, or 0 if hidden.

    The last layer only outputs the candidate's state, so only its row of A is computed.

    Args:
        spec: Widths and dropout.
        length: Largest number of ids of a history.
        is_last: Whether it is the last layer.
    """

    def __init__(self, spec: HstuSpec, length: int, *, is_last: bool) -> None:
        super().__init__()
        dim, heads = spec.embedding_dim, spec.attention_heads
        self.is_last, self.heads, self.widths = is_last, heads, spec.head_widths
        self.norms = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(heads * self.widths[1])])
        self.ask, self.show = (nn.Linear(dim, heads * sum(self.widths)) for _ in range(2))  # q and u, k and v
        self.bias = nn.Parameter(_nearest_first(length, heads)) if spec.relative_bias else None
        self.project_out = nn.Linear(heads * self.widths[1], dim)
        self.dropout = Dropout(spec.dropout)

    def forward(self, states: Tensor, is_hidden: Tensor, ages: Tensor) -> Tensor:
        """Apply the HSTU layer to the history.

        Args:
            states: `[batch, n, dim]`, the candidate first, then the ids of the history, the oldest first.
            is_hidden: Whether a state (first n) must not attend to another (second n), bool `[batch, n, n]`.
            ages: Distance of each state from the candidate, `[batch, n]`.

        Returns:
            New states, `[batch, n, dim]` in float32; in the last layer `[batch, 1, dim]`.
        """
        queries = 1 if self.is_last else states.shape[1]
        normal = self.norms[0](states)
        query, gate = self._by_head(self.ask(normal[:, :queries]))
        key, value = self._by_head(self.show(normal))
        scores = torch.bmm(query, key.transpose(1, 2)).float()
        if self.bias is not None:
            scores = (scores.unflatten(0, (-1, self.heads)) + self._biases(ages, queries)).flatten(0, 1)
        hidden = is_hidden[:, :queries].repeat_interleave(self.heads, dim=0)
        weights = nn.functional.silu(scores).masked_fill(hidden, 0.0) / states.shape[1]
        seen = self._joined(torch.bmm(weights.to(value.dtype), value))
        added = self.project_out(self.norms[1](seen) * self._joined(gate))
        return states[:, :queries] + self.dropout(added).float()

    def _by_head(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        """Split `[batch, n, heads * (query + value width)]` into both parts, `[batch * heads, n, width]` each."""
        parts = nn.functional.silu(projected).unflatten(2, (self.heads, -1)).transpose(1, 2).flatten(0, 1)
        first, second = parts.split(self.widths, dim=2)
        return first, second

    def _joined(self, of_heads: Tensor) -> Tensor:
        """Map `[batch * heads, n, width]` to `[batch, n, heads * width]`."""
        return of_heads.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)

    def _biases(self, ages: Tensor, queries: int) -> Tensor:
        """Return biases `[batch, heads, queries, n]`: by age for the candidate, by distance between ids."""
        assert self.bias is not None
        of_candidate = nn.functional.embedding(ages, self.bias).transpose(1, 2).unsqueeze(2)
        if queries == 1:
            return of_candidate
        place = torch.arange(queries, device=ages.device)
        of_ids = nn.functional.embedding((place[1:, None] - place).clamp(min=0), self.bias).permute(2, 0, 1)
        return torch.cat([of_candidate, of_ids.expand(ages.shape[0], -1, -1, -1)], dim=2)


class HstuEncoder(nn.Module):
    """HSTU layers over the candidate followed by the history.

    An id attends to itself and earlier ids, the candidate to all ids. A history with a vocabulary of its own has no
    candidate; a learned vector is used instead.

    Args:
        spec: The layers, and width of the embeddings.
        length: Largest number of ids of the history.
        has_candidate: Whether the history has a candidate.
    """

    def __init__(self, spec: HstuSpec, length: int, *, has_candidate: bool) -> None:
        super().__init__()
        self.question = None if has_candidate else nn.Parameter(0.1 * torch.randn(spec.embedding_dim))
        self.layers = nn.ModuleList(
            HstuLayer(spec, length, is_last=layer == spec.hstu_layers - 1) for layer in range(spec.hstu_layers)
        )

    def forward(self, vectors: Tensor, lengths: Tensor, candidate: Tensor | None) -> Tensor:
        """Map `[batch, length, dim]`, lengths `[batch]` and candidates `[batch, dim]` to states `[batch, dim]`."""
        first = self.question if candidate is None else candidate
        assert first is not None, "a history without candidate has a question of its own"
        states = torch.cat([first.expand(vectors.shape[0], -1).unsqueeze(1), vectors], dim=1)
        place = torch.arange(states.shape[1], device=vectors.device)
        ages = torch.where(place > 0, (lengths.unsqueeze(1) + 1 - place).clamp(min=0), 0)
        comes_later = (place > place.unsqueeze(1)) | ((place == 0) & (place > 0).unsqueeze(1))
        is_hidden = ~is_filled(lengths + 1, states.shape[1]).unsqueeze(1) | (comes_later & (place > 0).unsqueeze(1))
        for layer in self.layers:
            states = layer(states, is_hidden, ages)
        return states[:, 0]


def _nearest_first(length: int, heads: int) -> Tensor:
    """Return the initial bias at distances from 0 to `length`, `[length + 1, heads]`; flatter for later heads."""
    distance = (torch.arange(length + 1) - 1).clamp(min=0)
    return NEAREST * 0.5 ** (distance.unsqueeze(1) * 0.5 ** torch.arange(heads))


class HstuLayers(HistoryLayers):
    """All layers of HSTU above the tables.

    Raises:
        RequestError: There is no history, or the layers cannot be built.
    """

    def __init__(self, spec: HstuSpec, features: Features) -> None:
        check_histories(spec.family, features)
        _check(spec)
        encoders = [
            HstuEncoder(spec, field.length or 0, has_candidate=place is not None)
            for field, place in zip(features.histories, candidates(features), strict=True)
        ]
        super().__init__(spec, features, encoders, [spec.embedding_dim] * len(encoders), take_candidates=True)


def _check(spec: HstuSpec) -> None:
    if spec.hstu_layers < 1:
        raise RequestError(
            f"A model hstu with hstu_layers = {spec.hstu_layers} does not read the history: use at least 1."
        )
    for name, value in (
        ("attention_heads", spec.attention_heads),
        ("query_width", spec.query_width),
        ("value_width", spec.value_width),
    ):
        if value is not None and value < 1:
            raise RequestError(f"A model hstu with {name} = {value} has no effect: use at least 1.")


HSTU = Family(
    spec=HstuSpec,
    layers=HstuLayers,
    ranges={
        "hstu_layers": (1, 2, 3),
        "attention_heads": (1, 2, 4),
        "query_width": (None, 8, 16, 32),
        "value_width": (None, 8, 16, 32),
        "relative_bias": (True, False),
    },
)
