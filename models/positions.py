"""Rearrangement of a batch for families that read a history id by id: one bag for each position of a history.

The embeddings are looked up by the usual kernels with their fused row-wise Adagrad. A position is a bag of one id; a
position after the newest id is an empty bag, which gives zeros. All positions share the table of their field.
"""

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from shunter.models.constant import Constant
from shunter.models.spec import Features


class PositionBatch(NamedTuple):
    """Batch of ids with one bag for each position of a history, as returned by `Positions`.

    Attributes:
        values: Ids.
        offsets: Start of each bag in `values`, and the end.
        lengths: Ids in each history, int64 `[batch, histories]`.
        weights: Weight of each id in its bag, `[ids]`; None is 1.
    """

    values: Tensor
    offsets: Tensor
    lengths: Tensor
    weights: Tensor | None = None


class Positions:
    """Splits the bag of each history into its positions, the oldest id at position 0.

    Example: a field of two samples, then a history of at most three ids, of which the samples have two and one:

        values   [ a0 a1 | b0 b0' b1 ]          offsets   [ 0 1 2 4 5 ]
    becomes
        values   [ a0 a1 | b0 b1 | b0' | ]      offsets   [ 0 1 2 3 4 5 5 5 5 ]

    Args:
        features: Input features.

    Attributes:
        widths: Bags of each field: the length of a history, one for any other field.
        table_of: Table of each bag (`shunter.models.embeddings.role.EmbeddingTables`).
    """

    def __init__(self, features: Features) -> None:
        self.widths = tuple(field.length or 1 for field in features.categorical)
        tables = zip(features.table_of, self.widths, strict=True)
        self.table_of = tuple(table for table, width in tables for _ in range(width))
        is_history = [field.length is not None for field in features.categorical]
        self._is_history = Constant(is_history)
        self._histories = Constant([place for place, found in enumerate(is_history) if found])
        self._first_bag = Constant([0, *accumulate(self.widths)][:-1])

    def __call__(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> PositionBatch:
        """Rearrange a batch; no shape depends on the ids, so that a GPU does not wait for the host.

        Args:
            values: Ids, ordered by field and then by sample.
            offsets: `[fields * batch + 1]`, start of each bag in `values`, and the end.
            weights: Weight of each id in its bag, `[ids]`; None is 1.
        """
        device, fields = values.device, len(self.widths)
        lengths = offsets.diff().long()
        batch = len(lengths) // fields
        is_history = self._is_history.on(device)
        first_bag = self._first_bag.on(device)
        bag = torch.repeat_interleave(lengths, output_size=len(values))
        rank = torch.arange(len(values), device=device) - offsets[bag]
        field = bag // batch
        position = torch.where(is_history[field] > 0, rank, 0)
        new_bag = (first_bag[field] + position) * batch + bag % batch
        new_lengths = torch.zeros(len(self.table_of) * batch, dtype=torch.int64, device=device)
        new_lengths.index_add_(0, new_bag, torch.ones_like(new_bag))
        new_offsets = torch.zeros(len(new_lengths) + 1, dtype=offsets.dtype, device=device)
        new_offsets[1:] = new_lengths.cumsum(0)
        place = new_offsets[new_bag] + (rank - position)
        return PositionBatch(
            values=torch.empty_like(values).scatter_(0, place, values),
            offsets=new_offsets,
            lengths=lengths.view(fields, batch).index_select(0, self._histories.on(device)).t(),
            weights=None if weights is None else torch.empty_like(weights).scatter_(0, place, weights),
        )
