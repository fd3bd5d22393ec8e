"""Rows that are drawn each by itself: in any order the same, and not before somebody asks for them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.extensions.tiers.tiered import TieredEmbeddings
from shunter.models.embeddings import initial_weights
from shunter.models.embeddings.initial_weights import ROWS_DRAWN_AT_ONCE, IndependentRows, draw_tables
from tests.extensions.tiers.test_tiered import (
    TABLES,
    assert_same_tables,
    build,
    build_tiered,
    draw_batches,
    largest_window,
    train_in_memory,
    train_step,
    train_tiered,
)


@pytest.fixture(autouse=True)
def from_five_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the tables of 9, 1 and 14 rows the first and the last are drawn row by row."""
    monkeypatch.setattr(initial_weights, "LATER_FROM_ROWS", 5)


def uninitialised(tables: TieredEmbeddings) -> int:
    return tables._tiers._map.uninitialised


@settings(deadline=None, max_examples=20)
@given(width=st.integers(1, 9), key=st.integers(0, 2**63 - 2), rows=st.lists(st.integers(0, 10**9), min_size=1))
def test_a_row_is_the_same_whichever_rows_it_is_drawn_with(width: int, key: int, rows: list[int]) -> None:
    table = IndependentRows(table=0, rows=10**9 + 1, width=width, limit=0.3, key=key)
    together = table.draw(np.array(rows))
    assert np.array_equal(together, np.concatenate([table.draw(np.array([row])) for row in rows]))
    assert np.abs(together).max() <= np.float32(0.3)


def test_numbers_are_spread_evenly_and_tell_nothing_of_each_other() -> None:
    one, other = (IndependentRows(table=0, rows=1, width=5, limit=1, key=key) for key in (7, 8))
    drawn = one.draw(np.arange(40_000)).astype(np.float64)
    counts = np.histogram(drawn, bins=50, range=(-1, 1))[0]
    assert ((counts - 4_000) ** 2 / 4_000).sum() < 100  # 49 degrees of freedom: 85 for one in a thousand
    columns = np.corrcoef([*drawn.T, *drawn[:, :1].T[:, ::-1], *other.draw(np.arange(40_000)).T])
    assert np.abs(columns - np.eye(len(columns))).max() < 0.03  # six deviations
    assert abs(np.corrcoef(drawn[1:, 0], drawn[:-1, -1])[0, 1]) < 0.03


def test_parts_of_a_table_are_drawn_as_the_whole() -> None:
    rows = ROWS_DRAWN_AT_ONCE + 3
    kept: list[IndependentRows] = []
    list(draw_tables([rows], 2, torch.Generator().manual_seed(1), later=kept.append))
    parts = [part.clone() for _, _, part in draw_tables([rows], 2, torch.Generator().manual_seed(1))]
    assert np.array_equal(torch.cat(parts).numpy(), kept[0].draw(np.arange(rows)))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), samples=st.integers(1, 3), depth=st.integers(1, 3), spare=st.integers(0, 4))
def test_any_access_pattern_gives_bitwise_the_tables_in_memory(seed: int, samples: int, depth: int, spare: int) -> None:
    batches = draw_batches(TABLES, count=8, samples=samples, seed=seed)
    in_memory = build(TABLES, "torch")
    tiered = build_tiered(TABLES, "torch", max(largest_window(batches, 1), 1) + spare, depth + 2)
    assert uninitialised(tiered) == 23
    expected, found = train_in_memory(in_memory, batches), train_tiered(tiered, batches, depth)
    assert all(torch.equal(left, right) for left, right in zip(found, expected, strict=True))
    assert_same_tables(tiered, in_memory)
    assert uninitialised(tiered) == 0, "somebody has asked for all"


def test_a_row_begins_when_it_is_trained_or_scored() -> None:
    in_memory, tiered = build([9], "torch"), build_tiered([9], "torch", slots=4)
    offsets = torch.tensor([0, 2], dtype=torch.int32)
    train_step(tiered, tiered.admit(torch.tensor([3, 5], dtype=torch.int32), offsets), offsets, 0)
    assert not tiered.weight[[0, 1, 2, 4, 6, 7, 8]].any()
    scored = torch.tensor([1, 1], dtype=torch.int32)
    assert torch.equal(*(tables.eval()(scored, offsets) for tables in (tiered, in_memory)))
    [shard] = tiered.initialised_shards()
    assert shard.starts is not None
    begun = torch.ones(9, dtype=torch.bool)
    tiered.flush()
    shard.starts.mask_initialised(begun)
    assert begun.nonzero().view(-1).tolist() == [1, 3, 5]


def test_what_others_write_stays_and_what_is_drawn_again_is_as_at_first() -> None:
    in_memory, tiered = build([9], "torch"), build_tiered([9], "torch", slots=4)
    [shard] = tiered.initialised_shards()
    assert shard.starts is not None
    shard.weight[torch.tensor([2])] = 8.0
    shard.starts.record_written(torch.tensor([2]))
    assert torch.equal(tiered.tables[0][2], torch.full((4,), 8.0))
    assert torch.equal(tiered.tables[0][3:], in_memory.tables[0][3:])
    tiered.draw_again()
    assert uninitialised(tiered) == 9
    assert torch.equal(tiered.tables[0], in_memory.tables[0])
    in_memory.tables[0][2] = 8.0
    in_memory.draw_again()
    assert torch.equal(tiered.tables[0], in_memory.tables[0])


def test_weights_that_are_loaded_are_all_there() -> None:
    tiered, other = build_tiered([9], "torch", slots=4), build([9], "torch")
    other.tables[0][:] += 1
    tiered.load_state_dict(other.state_dict())
    assert uninitialised(tiered) == 0
    assert_same_tables(tiered, other)
