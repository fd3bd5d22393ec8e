"""The cache's book-keeping against one that is written row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import RequestError
from shunter.extensions.tiers.slots import NOWHERE, SlotMap

ROWS = 12


class ByHand:
    """Those of the lowest level, least recently used, batch by batch; among rows of the same batch, any."""

    def __init__(self, slots: int, window: int, levels: list[int]) -> None:
        self.slots, self.window, self.levels, self.batch = slots, window, levels, 0
        self.last_use: dict[int, int] = {}

    def admit(self, rows: list[int]) -> tuple[set[int], list[tuple[int, int]]]:
        """Rows that arrive, and the levels and last uses of those that leave, in order; None when they do not fit."""
        arriving = set(rows) - self.last_use.keys()
        self.last_use |= dict.fromkeys(rows, self.batch)
        surplus = max(len(self.last_use) - self.slots, 0)
        is_free = {row: use for row, use in self.last_use.items() if use <= self.batch - self.window}
        leaving = sorted((self.levels[row], use) for row, use in is_free.items())[:surplus]
        assert len(leaving) == surplus, "the window is larger than the cache"
        self.batch += 1
        return arriving, leaving


@settings(max_examples=50, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, ROWS - 1), unique=True, max_size=6), max_size=25),
    slots=st.integers(1, ROWS),
    window=st.integers(1, 4),
    levels=st.none() | st.lists(st.sampled_from([0, 1, 7, 255]), min_size=ROWS, max_size=ROWS),
)
def test_every_admission_is_what_the_rule_says(
    batches: list[list[int]], slots: int, window: int, levels: list[int] | None
) -> None:
    found = SlotMap(ROWS, slots, window, None if levels is None else np.array(levels, dtype=np.uint8))
    expected = ByHand(slots, window, levels or [0] * ROWS)
    held: dict[int, int] = {}  # row -> slot
    for rows in batches:
        recent = {row for row, use in expected.last_use.items() if use > expected.batch - window}
        if len(recent | set(rows)) > slots:
            with pytest.raises(RequestError, match="--embedding-memory"):
                found.admit(np.array(rows, dtype=np.int64))
            assert dict(zip(*(part.tolist() for part in found.residents()), strict=True)) == held
            if len(rows) > slots:
                return
            found.leave_window()  # which is all that the error asks for
            expected.batch += window
        admission = found.admit(np.array(rows, dtype=np.int64))
        arriving, leaving = expected.admit(rows)
        assert set(admission.arriving.tolist()) == arriving
        left = [(expected.levels[row], expected.last_use.pop(row)) for row in admission.leaving.tolist()]
        assert left == leaving
        for row, slot in zip(admission.leaving.tolist(), admission.leaving_slots.tolist(), strict=True):
            assert held.pop(row) == slot
        held |= dict(zip(admission.arriving.tolist(), admission.arriving_slots.tolist(), strict=True))
        assert [held[row] for row in rows] == admission.slots.tolist()
        assert len(set(held.values())) == len(held) <= slots
        assert held.keys() == expected.last_use.keys()
        assert dict(zip(*(part.tolist() for part in found.residents()), strict=True)) == held


def test_the_error_names_the_sizes() -> None:
    slots = SlotMap(100, 10, window_batches=3)
    slots.admit(np.arange(4))
    slots.admit(np.arange(2, 8))
    with pytest.raises(RequestError, match=r"cache of 10 rows cannot hold the 11 rows of 3 batches"):
        slots.admit(np.arange(50, 53))


def test_after_an_error_a_cleared_map_is_whole_again() -> None:
    slots = SlotMap(100, 10, window_batches=1)
    with pytest.raises(RequestError):
        slots.admit(np.arange(11))
    slots.clear()
    assert sorted(slots.admit(np.arange(50, 60)).slots.tolist()) == list(range(10))


def test_leaving_the_window_frees_what_was_in_work() -> None:
    slots = SlotMap(100, 10, window_batches=5)
    slots.admit(np.arange(10))
    slots.leave_window()
    assert sorted(slots.admit(np.arange(20, 30)).leaving.tolist()) == list(range(10))


@pytest.mark.parametrize("levels", [None, np.arange(100, dtype=np.uint8)])
def test_memory_stays_bounded_where_all_rows_are_found(levels: np.ndarray | None) -> None:
    slots = SlotMap(100, 50, 2, levels)
    for _ in range(1_000):
        slots.admit(np.arange(20))
    assert sum(len(entries) for used in slots._used for _, entries in used) <= 3 * 50
    assert slots.admit(np.array([99])).slots[0] != NOWHERE
