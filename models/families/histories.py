"""What families that read histories id by id share: all but the encoders, which make one vector of a history."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.layers import FieldVectors, scoring_mlp
from shunter.models.positions import Positions
from shunter.models.spec import Features, ModelSpec


class HistoryLayers(nn.Module):
    """The vectors of all other fields and what an encoder makes of each history, under an MLP.

    Other multi-valued fields are pooled as in every family. The candidate of a history is the field whose ids the
    history holds: the item that is shown, where it holds items.

    Args:
        spec: Widths of the MLP.
        features: Features that come in.
        encoders: For each history a module from its vectors `[batch, length, dim]` and lengths `[batch]` to
            `[batch, width]`; where they take candidates, from that of the history too, `[batch, dim]`, or None.
        widths: What the encoders give.
        take_candidates: Whether they do.
    """

    def __init__(
        self,
        spec: ModelSpec,
        features: Features,
        encoders: Sequence[nn.Module],
        widths: Sequence[int],
        *,
        take_candidates: bool = False,
    ) -> None:
        super().__init__()
        others = tuple(field for field in features.categorical if field.length is None)
        self.vectors = FieldVectors(spec, Features(dense=features.dense, categorical=others))
        self.encoders = nn.ModuleList(encoders)
        self.top = scoring_mlp(spec, self.vectors.width + sum(widths), features.outputs)
        self._is_history = [field.length is not None for field in features.categorical]
        self._candidates = candidates(features) if take_candidates else None
        self._widths = Positions(features).widths
        self._dim = spec.embedding_dim

    def forward(self, dense: Tensor, pooled: Tensor, lengths: Tensor) -> Tensor:
        """Score a batch.

        Args:
            dense: `[batch, dense features]`.
            pooled: `[batch, bags, dim]`, where each position of a history has a bag (`shunter.models.positions`).
            lengths: `[batch, histories]` ids.

        Returns:
            Logits as `shunter.models.families.family.Family` says.
        """
        fields = pooled.split(self._widths, dim=1)
        others = [vectors for vectors, is_history in zip(fields, self._is_history, strict=True) if not is_history]
        histories = [vectors for vectors, is_history in zip(fields, self._is_history, strict=True) if is_history]
        parts = [] if not self.vectors.count else [self._other_vectors(dense, others).flatten(1)]
        for number, (vectors, length) in enumerate(zip(histories, lengths.unbind(1), strict=True)):
            encoder = self.encoders[number]
            if self._candidates is None:
                parts.append(encoder(vectors, length))
                continue
            place = self._candidates[number]
            parts.append(encoder(vectors, length, None if place is None else fields[place][:, 0]))
        return self.top(torch.cat(parts, dim=1)).squeeze(1)

    def _other_vectors(self, dense: Tensor, others: list[Tensor]) -> Tensor:
        pooled = torch.cat(others, dim=1) if others else dense.new_zeros(len(dense), 0, self._dim)
        return self.vectors(dense, pooled)


def candidates(features: Features) -> tuple[int | None, ...]:
    """Of each history the place of its candidate among the fields; None where it has ids of its own."""
    places = {field.name: place for place, field in enumerate(features.categorical) if field.length is None}
    return tuple(places.get(field.table) if field.table else None for field in features.histories)


def check_histories(family: str, features: Features) -> None:
    """Raise a `RequestError` where there is no history to read."""
    if not features.histories:
        raise RequestError(
            f"A model of family {family!r} reads histories and the data has none: name one under `sequences` in the "
            "schema."
        )


def is_filled(lengths: Tensor, positions: int) -> Tensor:
    """Which positions hold an id: bool `[batch, positions]` from `[batch]`."""
    return torch.arange(positions, device=lengths.device) < lengths.unsqueeze(1)
