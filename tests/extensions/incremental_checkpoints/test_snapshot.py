"""What is written beside training is what was there at the moment, whatever steps change meanwhile."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import shunter.extensions.incremental_checkpoints.snapshot as snapshots
from shunter.extensions.incremental_checkpoints.pieces import Piece
from shunter.extensions.incremental_checkpoints.snapshot import Snapshot
from shunter.models.embeddings.mixed import MixedEmbeddings
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.torch_kernel import TorchEmbeddings
from shunter.models.spec import TableShape

ROWS = (40, 3, 25)


def tables_of(widths: tuple[int, ...]) -> EmbeddingTables:
    if len(set(widths)) == 1:
        tables = TorchEmbeddings(ROWS, widths[0], learning_rate=0.1, device=torch.device("cpu"))
    else:
        shapes = [TableShape(ids=rows, rows=rows, width=width) for rows, width in zip(ROWS, widths, strict=True)]
        tables = MixedEmbeddings(shapes, max(widths), learning_rate=0.1, device=torch.device("cpu"), kernel="torch")
    tables.initialise(torch.Generator().manual_seed(0))
    tables.adagrad_sum.uniform_()
    return tables


def change(tables: EmbeddingTables, rows: Tensor) -> None:
    """What a step does: no row it touches stays what it was, and no other row changes."""
    first = 0
    for shard in tables.shards():
        own = rows[(rows >= first) & (rows < first + len(shard.weight))].unique() - first
        shard.weight[own] += 1
        shard.adagrad_sum[own] += 1
        first += len(shard.weight)


def laid_out(tables: EmbeddingTables, pieces: list[Piece]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """How often each row was written, and with which numbers."""
    seen = torch.zeros(sum(tables.rows), dtype=torch.int)
    weights = [torch.zeros_like(shard.weight) for shard in tables.shards()]
    sums = [torch.zeros_like(shard.adagrad_sum) for shard in tables.shards()]
    for piece in pieces:
        rows = piece.rows + piece.first_row
        assert torch.equal(rows, rows.unique()), "ascending"
        assert isinstance(piece.weight, Tensor)
        seen[rows + sum(tables.rows[: piece.table])] += 1
        weights[piece.table][rows], sums[piece.table][rows] = piece.weight, piece.adagrad_sum
    return seen, weights, sums


@settings(deadline=None, max_examples=30)
@given(
    widths=st.sampled_from([(4, 4, 4), (2, 8, 4)]),
    wanted=st.one_of(st.none(), st.lists(st.booleans(), min_size=sum(ROWS), max_size=sum(ROWS))),
    steps=st.lists(st.lists(st.integers(0, sum(ROWS) - 1), min_size=1, max_size=8), max_size=30),
    numbers_at_once=st.sampled_from([8, 1 << 14]),
    copied_bytes=st.sampled_from([1 << 12, 1 << 20]),
    data=st.data(),
)
def test_each_row_is_written_once_and_as_it_was(
    *,
    widths: tuple[int, ...],
    wanted: list[bool] | None,
    steps: list[list[int]],
    numbers_at_once: int,
    copied_bytes: int,
    data: st.DataObject,
) -> None:
    tables = tables_of(widths)
    shards = list(tables.shards())
    weights, sums = [shard.weight.clone() for shard in shards], [shard.adagrad_sum.clone() for shard in shards]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "PIECE_BYTES", 10 * numbers_at_once)
        patch.setattr(snapshots, "NUMBERS_AT_ONCE", numbers_at_once)
        snapshot = Snapshot(tables, None if wanted is None else torch.tensor(wanted), copied_bytes)
        written = snapshot.pieces()
        pieces: list[Piece] = []
        waiting = [torch.tensor(step) for step in steps]
        is_written = False
        while waiting or not is_written:
            if waiting and (is_written or data.draw(st.booleans())):
                if not is_written and not snapshot._has_room(np.unique(waiting[0].numpy())):
                    pass  # training would wait, which one thread cannot: the writer goes on
                else:
                    rows = waiting.pop(0)
                    snapshot.before_step(rows)
                    change(tables, rows)
                    continue
            piece = next(written, None)
            if piece is None:
                is_written = True
            else:
                pieces.append(piece)
    seen, found_weights, found_sums = laid_out(tables, pieces)
    expected = torch.ones(sum(ROWS), dtype=torch.bool) if wanted is None else torch.tensor(wanted)
    assert torch.equal(seen, expected.int())
    for table, is_kept in enumerate(expected.split(ROWS)):
        assert torch.equal(found_weights[table][is_kept], weights[table][is_kept])
        assert torch.equal(found_sums[table][is_kept], sums[table][is_kept])


@pytest.mark.parametrize("copied_bytes", [1 << 12, 1 << 24])  # with the first, training waits again and again
def test_a_thread_that_trains_at_full_speed_tears_no_row(copied_bytes: int) -> None:
    tables = TorchEmbeddings([5_000, 3_000], 8, learning_rate=0.1, device=torch.device("cpu"))
    tables.weight.zero_()
    tables.adagrad_sum.zero_()
    random = torch.Generator().manual_seed(0)
    snapshot = Snapshot(tables, None, copied_bytes)
    is_over = threading.Event()

    def train() -> None:
        while not is_over.is_set():
            rows = torch.randint(8_000, (100,), generator=random)
            snapshot.before_step(rows)
            change(tables, rows)

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        seen, weights, sums = laid_out(tables, list(snapshot.pieces()))
    finally:
        snapshot.close()
        is_over.set()
        trainer.join()
    assert bool((seen == 1).all())
    assert not any(bool(tensor.any()) for tensor in (*weights, *sums))
    assert bool(tables.weight.any())


def test_when_writing_fails_training_goes_on() -> None:
    tables = tables_of((4, 4, 4))
    snapshot = Snapshot(tables, None, 8)
    snapshot.before_step(torch.tensor([1, 2]))
    waiting = threading.Thread(target=snapshot.before_step, args=(torch.tensor([3]),))
    waiting.start()
    assert waiting.is_alive()
    snapshot.close()
    waiting.join(timeout=60)
    assert not waiting.is_alive()


def test_rows_are_counted_in_what_nobody_changes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy counts what is true, and fills as many numbers then: a step between the two would leave some of no row."""
    snapshot = Snapshot(tables_of((4, 4, 4)), copied_bytes=1 << 20)
    flatnonzero, looked_at = np.flatnonzero, []

    def between_the_two(pending: np.ndarray) -> np.ndarray:
        looked_at.append(np.shares_memory(pending, snapshot._pending))
        return flatnonzero(pending)

    monkeypatch.setattr(np, "flatnonzero", between_the_two)
    list(snapshot.pieces())
    assert looked_at
    assert not any(looked_at)
