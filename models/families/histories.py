"""Layers that families reading histories id by id share: everything except the encoders of histories."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.layers import FieldVectors, scoring_mlp
from shunter.models.positions import Positions
from shunter.models.spec import Features, ModelSpec


class HistoryLayers(nn.Module):
    """MLP over an encoding of each history and the vectors of the fields that are no histories.

    Other multi-valued fields are pooled as in every family. The candidate of a history is the field with the same ids,
    such as the item to score for a history of items.

    Args:
        spec: Widths of the MLP.
        features: Input features.
        encoders: For each history a module that maps its vectors `[batch, length, dim]` and lengths `[batch]` to
            `[batch, width]`. With `take_candidates` it also takes the candidate `[batch, dim]`, or None.
        widths: Output widths of the encoders.
        take_candidates: Whether the encoders take candidates.
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
        """Return the logits of a batch from embeddings and histories.

        Args:
            dense: Dense features, `[batch, dense features]`.
            pooled: Vectors, `[batch, bags, dim]`; each position of a history has a bag (`shunter.models.positions`).
            lengths: Number of ids of each history, `[batch, histories]`.

        Returns:
            Logits, see `shunter.models.families.family.Family`.
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
        pooled = torch.cat(others, dim=1) if others else dense.new_zeros(dense.shape[0], 0, self._dim)
        return self.vectors(dense, pooled)


def candidates(features: Features) -> tuple[int | None, ...]:
    """Return the index of each history's candidate field; None for a history with a vocabulary of its own."""
    places = {field.name: place for place, field in enumerate(features.categorical) if field.length is None}
    return tuple(places.get(field.table) if field.table else None for field in features.histories)


def check_histories(family: str, features: Features) -> None:
    """Raise `RequestError` if there is no history to read."""
    if not features.histories:
        raise RequestError(
            f"A model of family {family!r} needs a history, but the data has none: name one under "
            "`sequences` in the schema."
        )


def is_filled(lengths: Tensor, positions: int) -> Tensor:
    """Return which positions have an id, bool `[batch, positions]`, from lengths `[batch]`."""
    return torch.arange(positions, device=lengths.device) < lengths.unsqueeze(1)
