"""Which rows are worth more bits: those that steps look up most.

A row's rounding error counts in the loss each time that it is looked up, and lookups follow a power law. Row-wise
Adagrad's sums of squared gradients grow with each of them, so the rows with the largest sums of their table are the
hot ones. A tenth of the rows, in 8 bits instead of 2 to 4, spares most of what few bits cost in quality.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.pieces import Piece, some_rows
from shunter.models.embeddings.shards import Shard

HOT_SHARE = 0.1
HOT_BITS = 8
ROWS_LOOKED_AT = 1 << 12  # of a shard, evenly: as many tell the share to a hundredth or so


class HotRows:
    """Divides pieces into hot rows and others.

    Args:
        shards: Blocks of tables as they are now.
    """

    def __init__(self, shards: Iterable[Shard]) -> None:
        looked_at: dict[int, list[Tensor]] = {}
        for shard in shards:
            every = max(len(shard.adagrad_sum) // ROWS_LOOKED_AT, 1)
            looked_at.setdefault(shard.table, []).append(shard.adagrad_sum[::every].detach().cpu())
        self._least = {
            table: float(np.quantile(torch.cat(sums).numpy(), 1 - HOT_SHARE)) for table, sums in looked_at.items()
        }

    def divide(self, piece: Piece) -> Iterator[Piece]:
        """The hot rows of a piece, with their bits, and the others; one that is quantised already stays as it is."""
        if piece.stored_bits is not None:
            yield piece
            return
        is_hot = (piece.adagrad_sum > self._least[piece.table]).numpy()
        for wanted, bits in ((is_hot, HOT_BITS), (~is_hot, None)):
            if wanted.any():
                yield replace(some_rows(piece, np.flatnonzero(wanted)), own_bits=bits)
