"""The memory of stored tables: never more than there is, first rows of all tables, one sentence if it is too little."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import RequestError
from shunter.extensions.tiers.stored.memory_division import divide, first_rows
from shunter.extensions.tiers.stored.row_cache import BYTES_A_SLOT

TABLES = st.lists(st.integers(1, 50_000), min_size=1, max_size=20)


@given(TABLES, st.integers(1, 64).map(lambda one: 4 * one), st.integers(1 << 20, 1 << 26), st.booleans(), st.data())
def test_no_more_than_there_is(rows: list[int], dim: int, memory: int, has_lists: bool, data: st.DataObject) -> None:
    ranked = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    divided = divide(memory, rows, dim, len(rows), has_lists=has_lists, is_ranked=ranked)
    row_bytes = 4 * dim
    taken = (sum(divided.pinned) + divided.batch_rows) * row_bytes + divided.cached_rows * (row_bytes + BYTES_A_SLOT)
    assert taken + divided.pooled_bytes + divided.buffer_bytes <= memory
    assert all(pinned <= size for pinned, size in zip(divided.pinned, rows, strict=True))
    assert all(
        pinned in (0, size) for pinned, size, is_rank in zip(divided.pinned, rows, ranked, strict=True) if not is_rank
    )


@given(TABLES, st.integers(0, 200_000))
def test_the_first_rows_are_one_number_or_whole_tables(rows: list[int], divided: int) -> None:
    taken = first_rows(divided, rows, [True] * len(rows))
    assert sum(taken) <= divided
    level = max(taken)
    assert all(one == min(size, level) for one, size in zip(taken, rows, strict=True))
    open_tables = sum(size > level for size in rows)
    assert sum(taken) == sum(rows) or divided - sum(taken) < open_tables


def test_too_little_for_a_sample_is_one_sentence() -> None:
    with pytest.raises(RequestError, match="--memory"):
        divide(1_000, [10, 20], 8, 2)


def test_more_memory_pins_no_fewer_rows() -> None:
    pins = [sum(divide(memory, [100, 5_000, 100_000], 16, 3).pinned) for memory in range(1 << 20, 1 << 22, 1 << 17)]
    assert np.all(np.diff(pins) >= 0)
