"""The rows with the largest Adagrad sums are kept in more bits, each row once."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.extensions.incremental_checkpoints.pieces import HOT_BITS, HOT_SHARE, HotRowSplitter, Piece, decode, encode
from shunter.models.embeddings.shards import Shard


def shard_of(sums: torch.Tensor) -> Shard:
    weight = torch.randn(len(sums), 4)
    return Shard(table=0, first_row=0, first_column=0, weight=weight, adagrad_sum=sums, replicated=False)


def piece_of(shard: Shard) -> Piece:
    rows = torch.arange(len(shard.weight))
    return Piece(
        table=0, first_row=0, first_column=0, rows=rows, weight=shard.weight, adagrad_sum=shard.adagrad_sum, columns=4
    )


@settings(deadline=None, max_examples=15)
@given(st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=300))
def test_each_row_is_kept_once_and_no_more_than_the_share_are_hot(sums: list[float]) -> None:
    shard = shard_of(torch.tensor(sums))
    pieces = list(HotRowSplitter([shard]).divide(piece_of(shard)))
    hot = [piece for piece in pieces if piece.own_bits == HOT_BITS]
    assert sorted(torch.cat([piece.rows for piece in pieces]).tolist()) == list(range(len(sums)))
    assert sum(len(piece.rows) for piece in hot) <= HOT_SHARE * len(sums) + 1
    if hot and len(pieces) == 2:
        assert float(pieces[0].adagrad_sum.min()) > float(pieces[1].adagrad_sum.max())


def test_hot_rows_come_back_in_their_bits() -> None:
    shard = shard_of(torch.arange(50.0))
    tensors = {}
    for number, piece in enumerate(HotRowSplitter([shard]).divide(piece_of(shard))):
        tensors |= encode(piece, 2, number)
    assert {piece.stored_bits: len(piece.rows) for piece in decode(tensors)} == {8: 5, 2: 45}
