"""DIN: a sum of a history's vectors, weighted by relevance for the candidate (Zhou et al., KDD 2018, 1706.06978)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.families.histories import HistoryLayers, candidates, check_histories, is_filled
from shunter.models.layers import mlp, normal_parameter
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class DinSpec(ModelSpec):
    """Configuration of a deep interest network; `top_widths` are those of the MLP above it.

    Attributes:
        activation_widths: Hidden widths of the MLP that computes the weight of a position.
        activation_softmax: Whether the weights of a history sum to one. In the paper they do not, so that many related
            ids count more than one.
    """

    family: ClassVar[str] = "din"

    activation_widths: tuple[int, ...] = (36,)
    activation_softmax: bool = False


class InterestPooling(nn.Module):
    """`sum_j a(e_j, v) e_j` over the ids e of a history for the candidate v (equation 3 of the paper).

    The weight is an MLP over `[e, v, e - v, e * v]`, with ReLU instead of the paper's Dice. A history with a vocabulary
    of its own has no candidate; a learned vector is used instead.

    Args:
        spec: The MLP, and width of the embeddings.
        has_candidate: Whether the history has a candidate.
    """

    def __init__(self, spec: DinSpec, *, has_candidate: bool) -> None:
        super().__init__()
        self.activation = mlp((4 * spec.embedding_dim, *spec.activation_widths, 1))
        self.question = None if has_candidate else normal_parameter(spec.embedding_dim, deviation=0.1)
        self.has_softmax = spec.activation_softmax

    def forward(self, vectors: Tensor, lengths: Tensor, candidate: Tensor | None) -> Tensor:
        """Map `[batch, length, dim]`, lengths `[batch]` and candidates `[batch, dim]` to `[batch, dim]`."""
        asked = self.question if candidate is None else candidate.unsqueeze(1)
        assert asked is not None, "a history without candidate has a question of its own"
        asked = asked.expand_as(vectors)
        weights = self.activation(torch.cat([vectors, asked, vectors - asked, vectors * asked], dim=2)).squeeze(2)
        filled = is_filled(lengths, vectors.shape[1])
        if self.has_softmax:
            weights = weights.masked_fill(~filled, torch.finfo(weights.dtype).min).softmax(1)
        return ((weights * filled).unsqueeze(2) * vectors).sum(1)


class DinLayers(HistoryLayers):
    """All layers of DIN above the tables.

    Raises:
        RequestError: There is no history, or a width of the activation is below 1.
    """

    def __init__(self, spec: DinSpec, features: Features) -> None:
        check_histories(spec.family, features)
        if any(width < 1 for width in spec.activation_widths):
            raise RequestError(
                f"The widths of layers in activation_widths are {list(spec.activation_widths)}: use widths "
                "of at least 1."
            )
        encoders = [InterestPooling(spec, has_candidate=place is not None) for place in candidates(features)]
        super().__init__(spec, features, encoders, [spec.embedding_dim] * len(encoders), take_candidates=True)


DIN = Family(
    spec=DinSpec,
    layers=DinLayers,
    ranges={"activation_widths": ((16,), (36,), (64, 16)), "activation_softmax": (False, True)},
)
