"""BST: a transformer over a history with the candidate (Chen et al., DLP-KDD 2019, arXiv 1905.06874).

With `transformer_causal` each id of the history attends only to earlier ids, as in SASRec (Kang and McAuley, ICDM
2018).

If only the candidate's state is used, the candidate's attention must learn which positions matter. With random
initialisation it attends to all positions equally, and for many epochs learns nothing from their order. The attention
therefore starts with a preference for the newest ids: a learned bias for each position and head is added to the
scores. The bias initially decreases with the distance, as in ALiBi (Press et al., ICLR 2022).

With several layers, only the first contributes initially: the residual branches of later layers have a learned factor
that starts at 0, as in ReZero (Bachlechner et al., UAI 2021). Without the factors, randomly initialised later layers
disturb the output of the first layer: with two layers, one of three seeds learned no order in 12 epochs. With the
factors every seed does.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.dropout import Dropout
from shunter.models.families.family import Family
from shunter.models.families.histories import HistoryLayers, candidates, check_histories, is_filled
from shunter.models.spec import Features, ModelSpec

STEEPEST = 2.0  # initial decrease of the first head's bias per position; half as much for each further head


@dataclass(frozen=True, kw_only=True)
class BstSpec(ModelSpec):
    """Configuration of a behaviour sequence transformer; `top_widths` are those of the MLP above it.

    `dropout` applies to the transformer too.

    Attributes:
        transformer_layers: Number of self-attention layers.
        attention_heads: Heads of each layer; divides `embedding_dim`.
        transformer_output: Output of the transformer: the concatenated states of all positions, or the state of the
            candidate, whose attention starts with a preference for the newest ids.
        transformer_causal: Whether an id of the history attends only to earlier ids; the candidate attends to all.
    """

    family: ClassVar[str] = "bst"

    transformer_layers: int = 1
    attention_heads: int = 2
    transformer_output: Literal["all", "candidate"] = "all"
    transformer_causal: bool = False


class TransformerLayer(nn.Module):
    """`x' = norm(x + attention(x)); norm(x' + W_2 leaky_relu(W_1 x'))` (equations 4 to 6), with dropout in both sums.

    In layers after the first, each residual branch is multiplied by a learned factor.

    The products are computed explicitly instead of by torch's fused attention, so that their cost can be counted.

    Args:
        dim: Width of the vectors.
        heads: Heads of the attention; divides `dim`.
        dropout: Dropout share of the residual branches.
        is_first: Whether this is the layer above the embeddings.
    """

    def __init__(self, dim: int, heads: int, dropout: float, *, is_first: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.shares = None if is_first else nn.Parameter(torch.zeros(2))
        self.project_in, self.project_out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.feed_forward = nn.Sequential(nn.Linear(dim, 4 * dim), nn.LeakyReLU(), nn.Linear(4 * dim, dim))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.dropout = Dropout(dropout)

    def forward(self, vectors: Tensor, is_hidden: Tensor, nearness: Tensor | None = None) -> Tensor:
        """Apply the transformer layer to the history.

        Args:
            vectors: States, `[batch, n, dim]`.
            is_hidden: Whether a state (first n) must not attend to another (second n), bool `[batch, n, n]`.
            nearness: Bias of the first state's attention scores, `[batch, n, heads]`.

        Returns:
            New states, `[batch, n, dim]` in float32.
        """
        attended = self.dropout(self._attend(vectors, is_hidden, nearness)).float()
        seen = self.norms[0](vectors + (attended if self.shares is None else self.shares[0] * attended))
        fed = self.dropout(self.feed_forward(seen)).float()
        return self.norms[1](seen + (fed if self.shares is None else self.shares[1] * fed))

    def _attend(self, vectors: Tensor, is_hidden: Tensor, nearness: Tensor | None) -> Tensor:
        parts = self.project_in(vectors).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.flatten(1, 2)  # each [batch * heads, n, dim / heads]
        scores = torch.bmm(query, key.transpose(1, 2)).float() * query.shape[2] ** -0.5
        if nearness is not None:
            of_first = nearness.transpose(1, 2).flatten(0, 1).unsqueeze(1)  # [batch * heads, 1, n]
            scores = scores + nn.functional.pad(of_first, (0, 0, 0, scores.shape[1] - 1))
        hidden = is_hidden.repeat_interleave(self.heads, dim=0)
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(2)
        seen = torch.bmm(weights.to(value.dtype), value).unflatten(0, (-1, self.heads))
        return self.project_out(seen.transpose(1, 2).flatten(2))


class TransformerEncoder(nn.Module):
    """Transformer layers over the candidate followed by the history, each with a position embedding.

    The position of an id is its distance from the candidate: 0 for the candidate, 1 for the newest id. A history with a
    vocabulary of its own has no candidate; a learned vector is used instead.

    Args:
        spec: The layers, and width of the embeddings.
        length: Largest number of ids of the history.
        has_candidate: Whether the history has a candidate.

    Attributes:
        width: Width of the output.
    """

    def __init__(self, spec: BstSpec, length: int, *, has_candidate: bool) -> None:
        super().__init__()
        dim = spec.embedding_dim
        self.places = nn.Parameter(0.1 * torch.randn(length + 1, dim))
        self.question = None if has_candidate else nn.Parameter(0.1 * torch.randn(dim))
        self.layers = nn.ModuleList(
            TransformerLayer(dim, spec.attention_heads, spec.dropout, is_first=layer == 0)
            for layer in range(spec.transformer_layers)
        )
        self.is_causal, self.gives_all = spec.transformer_causal, spec.transformer_output == "all"
        self.nearness = None if self.gives_all else nn.Parameter(_nearest_first(length, spec.attention_heads))
        self.register_load_state_dict_pre_hook(_as_before)
        self.width = dim * (length + 1 if self.gives_all else 1)

    def forward(self, vectors: Tensor, lengths: Tensor, candidate: Tensor | None) -> Tensor:
        """Map `[batch, length, dim]`, lengths `[batch]` and candidates `[batch, dim]` to `[batch, width]`."""
        first = self.question if candidate is None else candidate
        assert first is not None, "a history without candidate has a question of its own"
        joined = torch.cat([first.expand(vectors.shape[0], -1).unsqueeze(1), vectors], dim=1)
        position = torch.arange(joined.shape[1], device=vectors.device)
        filled = is_filled(lengths + 1, joined.shape[1])
        distance = torch.where(position > 0, (lengths.unsqueeze(1) + 1 - position).clamp(min=0), 0)
        states = joined + nn.functional.embedding(distance, self.places)
        is_hidden = ~filled.unsqueeze(1).expand(-1, joined.shape[1], -1)
        if self.is_causal:
            comes_later = position.unsqueeze(0) > position.unsqueeze(1)
            is_candidate = (position.unsqueeze(0) == 0) ^ (position.unsqueeze(1) == 0)
            asks = (position == 0).unsqueeze(1)
            is_hidden = is_hidden | ((comes_later | is_candidate) & ~asks)
        nearness = None if self.nearness is None else nn.functional.embedding(distance, self.nearness)
        for layer in self.layers:
            states = layer(states, is_hidden, nearness)
        return (states * filled.unsqueeze(2)).flatten(1) if self.gives_all else states[:, 0]


def _as_before(own: TransformerEncoder, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Add parameters that older saved models lack: a nearness bias of 0, and residual factors of 1."""
    for place in range(1, len(own.layers)):
        state_dict.setdefault(f"{prefix}layers.{place}.shares", torch.ones(2))
    if own.nearness is not None:
        state_dict.setdefault(f"{prefix}nearness", torch.zeros_like(own.nearness))


def _nearest_first(length: int, heads: int) -> Tensor:
    """Return the candidate's initial attention bias for itself and the ids, newest first, `[length + 1, heads]`."""
    distance = (torch.arange(length + 1) - 1).clamp(min=0)
    return -STEEPEST * distance.unsqueeze(1) * 0.5 ** torch.arange(heads)


class BstLayers(HistoryLayers):
    """All layers of BST above the tables.

    Raises:
        RequestError: There is no history, or the transformer cannot be built.
    """

    def __init__(self, spec: BstSpec, features: Features) -> None:
        check_histories(spec.family, features)
        _check(spec)
        encoders = [
            TransformerEncoder(spec, field.length or 0, has_candidate=place is not None)
            for field, place in zip(features.histories, candidates(features), strict=True)
        ]
        super().__init__(spec, features, encoders, [encoder.width for encoder in encoders], take_candidates=True)


def _check(spec: BstSpec) -> None:
    if spec.transformer_layers < 1:
        raise RequestError(
            f"A model bst with transformer_layers = {spec.transformer_layers} does not read the history: use "
            "at least 1."
        )
    if spec.attention_heads < 1 or spec.embedding_dim % spec.attention_heads:
        raise RequestError(
            f"The embedding width must be a multiple of attention_heads = {spec.attention_heads}, but is "
            f"{spec.embedding_dim}: change one of them."
        )
    if spec.transformer_output not in ("all", "candidate"):
        raise RequestError(f"Unknown transformer_output {spec.transformer_output!r}: use all or candidate.")


BST = Family(
    spec=BstSpec,
    layers=BstLayers,
    ranges={
        "transformer_layers": (1, 2),
        "attention_heads": (1, 2, 4),
        "transformer_output": ("all", "candidate"),
        "transformer_causal": (False, True),
    },
)
