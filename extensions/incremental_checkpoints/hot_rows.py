"""Access frequency of embedding rows: the rows that steps look up most are stored in more bits.

A row's rounding error counts in the loss at each lookup, and lookups follow a power law. Row-wise Adagrad's sums of
squared gradients grow with each lookup, so that the rows with the largest sums of their table are the hot rows. Storing
a tenth of the rows in 8 bits instead of 2 to 4 avoids most of the quality loss of few bits.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from shunter.extensions.incremental_checkpoints.pieces import Piece, rows_at
from shunter.models.embeddings.shards import Shard

HOT_SHARE = 0.1
HOT_BITS = 8
ROWS_LOOKED_AT = 1 << 12  # evenly sampled rows of a shard: enough to estimate the share to about 0.01


class HotRowSplitter:
    """Splitter of table pieces (`pieces.Piece`) into frequently accessed rows and other rows.

    Args:
        shards: Live blocks of the tables, with the optimizer state that measures access frequency.
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
        """Yield the hot rows of a piece, with their bits, then its other rows; yield a quantised piece unchanged."""
        if piece.stored_bits is not None:
            yield piece
            return
        is_hot = (piece.adagrad_sum > self._least[piece.table]).numpy()
        for wanted, bits in ((is_hot, HOT_BITS), (~is_hot, None)):
            if wanted.any():
                yield replace(rows_at(piece, np.flatnonzero(wanted)), own_bits=bits)
