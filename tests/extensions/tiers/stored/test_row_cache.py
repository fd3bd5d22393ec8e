"""A set-associative cache beside a dictionary: what it finds is what was put, and it makes room as its policy says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.extensions.tiers.stored.row_cache import WAYS, Policy, RowCache

DIM = 4


def values_of(rows: np.ndarray) -> np.ndarray:
    return rows[:, np.newaxis] + np.arange(DIM, dtype=np.float32) / 8


def ask(cache: RowCache, rows: np.ndarray) -> np.ndarray:
    """Which of the rows it had; the others are put into it."""
    slots = cache.find(rows)
    has = slots >= 0
    assert np.array_equal(cache.take(slots[has]), values_of(rows[has]))
    cache.put(rows[~has], values_of(rows[~has]))
    return has


@given(
    st.integers(0, 70),
    st.sampled_from(["lru", "lfu"]),
    st.lists(st.lists(st.integers(0, 200), max_size=60, unique=True), max_size=12),
)
def test_it_holds_what_was_put_and_no_more_than_it_may(slots: int, policy: Policy, batches: list[list[int]]) -> None:
    cache = RowCache(slots, DIM, policy)
    for batch in batches:
        ask(cache, np.array(sorted(batch), np.int64))
        residents = cache.residents()
        assert len(residents) <= cache.slots <= slots
        assert len(np.unique(residents)) == len(residents)
        found = cache.find(residents)
        assert (found >= 0).all()
        assert np.array_equal(cache.take(found), values_of(residents))


def test_one_set_gives_away_the_row_that_was_used_longest_ago() -> None:
    cache = RowCache(WAYS, DIM, "lru")
    for row in range(WAYS):
        ask(cache, np.array([row]))
    ask(cache, np.array([0]))
    ask(cache, np.array([100]))
    assert set(cache.residents()) == {0, 100, *range(2, WAYS)}


def test_one_set_gives_away_the_row_that_was_used_least() -> None:
    cache = RowCache(WAYS, DIM, "lfu")
    for row in [*range(WAYS), *range(1, WAYS)]:
        ask(cache, np.array([row]))
    ask(cache, np.array([100]))
    assert set(cache.residents()) == {100, *range(1, WAYS)}


def test_what_was_frequent_once_does_not_stay_for_ever() -> None:
    cache = RowCache(WAYS, DIM, "lfu")
    for _ in range(100):
        ask(cache, np.array([7]))
    for start in range(1_000, 60_000, 8):
        rows = np.arange(start, start + 8)
        ask(cache, rows)
        cache.find(rows)
    assert 7 not in cache.residents()


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_rows_of_one_set_that_are_more_than_it_holds(policy: Policy) -> None:
    cache = RowCache(WAYS, DIM, policy)
    assert not ask(cache, np.arange(3 * WAYS)).any()
    assert len(cache.residents()) == WAYS


def test_rows_beyond_the_numbers_of_32_bits_are_kept() -> None:
    cache = RowCache(WAYS, DIM, "lru")
    rows = np.array([3, 3 + (1 << 32)], np.int64)
    cache.put(rows, np.ones((2, DIM), np.float32))
    assert np.array_equal(np.sort(cache.residents()), rows)
