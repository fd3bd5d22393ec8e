"""Bookkeeping of a row cache, without its memory: which row of a large table is in which slot of a small table."""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shunter.errors import TooLargeError
from shunter.extensions.tiers.row_use import LEVELS

# States of a row without a slot: in the file (NOWHERE), or UNINITIALISED: never looked up and not in the file. A slot
# whose row is not in the file has the negative number UNWRITTEN - row.
NOWHERE, UNINITIALISED, UNWRITTEN = -1, -2, -3
# Memory of the bookkeeping: a slot and a level for each row; for each slot its row, last use and queue entries.
BYTES_A_ROW, BYTES_A_SLOT = 5, 28
# Batches are numbered from 0; slots that were never used have a smaller number.
NEVER = np.iinfo(np.int64).min
_Entry = tuple[int, np.ndarray]  # number of a batch, and slots that it used


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Work of the cache for a batch: first write the `leaving` rows back, then read the `arriving` rows.

    Attributes:
        slots: Slot of each distinct row of the batch, `[distinct rows of the batch]`.
        arriving: Rows that were not in the cache.
        arriving_slots: New slots of these rows.
        is_new: Whether each of these rows is looked up for the first time, so that it is not in the file.
        leaving: Evicted rows, at most as many as `arriving`.
        leaving_slots: Former slots of the evicted rows.
    """

    slots: np.ndarray
    arriving: np.ndarray
    arriving_slots: np.ndarray
    is_new: np.ndarray
    leaving: np.ndarray
    leaving_slots: np.ndarray


class SlotMap:
    """Assignment of slots to the rows of consecutive batches.

    The batches of the window, which are the present batch and those just before it, keep their slots, since their rows
    may still be read and written. Of the other slots, those of the lowest level are reassigned first, and within a
    level the least recently used. The order of use is exact between batches; within a batch it is the order of the
    rows.

    Args:
        rows: Rows of the large table.
        slots: Rows of the small table.
        window_batches: Batches that keep their slots, at least 1.
        levels: Expected access frequency of each row, uint8 `[rows]` (`shunter.extensions.tiers.row_use`); None
            treats all rows alike, so that the least recently used row is evicted.

    Attributes:
        uninitialised: Number of rows that are not in the file, including rows in slots that were never written back.
    """

    def __init__(self, rows: int, slots: int, window_batches: int, levels: np.ndarray | None = None) -> None:
        assert window_batches >= 1, "the window has at least the current batch"
        assert levels is None or (levels.shape == (rows,) and levels.dtype == np.uint8), "a level of each row"
        self.slots = slots
        self.window_batches = window_batches
        self._levels = levels
        self.uninitialised = 0
        self._slot_of_row = np.full(rows, NOWHERE, dtype=np.int32)
        self._row_of_slot = np.empty(slots, dtype=np.int64)
        self._last_use = np.empty(slots, dtype=np.int64)
        self.clear()

    def clear(self) -> None:
        """Empty all slots, but keep the record of initialised rows. This also repairs the map after an error."""
        self._batch = 0
        rows, slots = self.residents()
        self._slot_of_row[rows] = np.where(self._row_of_slot[slots] < NOWHERE, UNINITIALISED, NOWHERE)
        self._row_of_slot.fill(NOWHERE)
        self._last_use.fill(NEVER)
        # Slots of each level by the batch that used them, oldest first; an entry is stale if `_last_use` differs. Slots
        # that were never used are on the lowest level.
        self._used: list[deque[_Entry]] = [deque() for _ in range(1 if self._levels is None else LEVELS)]
        self._used[0].append((NEVER, np.arange(self.slots, dtype=np.int32)))
        self._entries = self.slots

    def are_initialised(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return for each of the rows whether the file has its weights, bool."""
        slots = self._slot_of_row[rows]
        found, in_slots = slots != UNINITIALISED, np.flatnonzero(slots >= 0)  # few of all rows
        found[in_slots] = self._row_of_slot[slots[in_slots]] >= NOWHERE
        return found

    def mark_initialised(self, rows: np.ndarray) -> None:
        """Record that the file has weights for these rows; they must be distinct."""
        new = rows[~self.are_initialised(rows)]
        slots = self._slot_of_row[new]
        self._slot_of_row[new[slots < 0]] = NOWHERE
        self._row_of_slot[slots[slots >= 0]] = new[slots >= 0]
        self.uninitialised -= len(new)

    def mark_all_initialised(self) -> None:
        """Record that the file has weights for all rows."""
        self._slot_of_row[self._slot_of_row == UNINITIALISED] = NOWHERE
        rows, slots = self.residents()
        self._row_of_slot[slots] = rows
        self.uninitialised = 0

    def mark_uninitialised(self, first: int, last: int) -> None:
        """Mark the rows `first` to `last` (exclusive) as missing from the file; call `clear` first."""
        self.uninitialised += int(np.count_nonzero(self.are_initialised(slice(first, last))))
        self._slot_of_row[first:last] = UNINITIALISED

    def leave_window(self) -> None:
        """End the window: the slots of all batches admitted so far may be reassigned."""
        self._batch += self.window_batches

    def admit(self, rows: np.ndarray) -> Admission:
        """Assign a slot to each row of the next batch, and return the rows to write back and to read.

        Args:
            rows: Distinct rows of the batch.

        Raises:
            TooLargeError: The batches of the window (this batch and those just before it) have more distinct rows than
                there are slots; the map is unchanged then.
        """
        slots = self._slot_of_row[rows]
        missing = np.flatnonzero(slots < 0)
        found = slots[slots >= 0]
        used_before = self._last_use[found]
        self._last_use[found] = self._batch
        try:
            arriving, arriving_slots = rows[missing], self._take(len(missing))
        except TooLargeError:
            self._last_use[found] = used_before
            raise
        is_new = self._slot_of_row[arriving] == UNINITIALISED
        leaving = self._row_of_slot[arriving_slots]
        is_unwritten = leaving < NOWHERE
        self.uninitialised -= int(np.count_nonzero(is_unwritten))
        leaving[is_unwritten] = UNWRITTEN - leaving[is_unwritten]
        is_taken = leaving != NOWHERE
        self._slot_of_row[leaving[is_taken]] = NOWHERE
        self._slot_of_row[arriving] = arriving_slots
        self._row_of_slot[arriving_slots] = np.where(is_new, UNWRITTEN - arriving, arriving)
        self._last_use[arriving_slots] = self._batch
        slots[missing] = arriving_slots
        for level, part in self._by_level(rows, slots):
            self._used[level].append((self._batch, part))
        self._entries += len(slots)
        self._batch += 1
        if self._entries > 2 * self.slots + len(slots):  # bounds the number of entries if most rows are found
            self._drop_stale()
        return Admission(
            slots=slots,
            arriving=arriving,
            arriving_slots=arriving_slots,
            is_new=is_new,
            leaving=leaving[is_taken],
            leaving_slots=arriving_slots[is_taken],
        )

    def residents(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all rows that have a slot, in ascending order, and their slots."""
        rows = np.flatnonzero(self._slot_of_row >= 0)
        return rows, self._slot_of_row[rows]

    def _take(self, count: int) -> np.ndarray:
        """Take the next `count` slots in eviction order that no batch of the window uses; raise if there are fewer."""
        taken = [np.empty(0, dtype=np.int32)]
        looked_through: list[tuple[deque[_Entry], _Entry]] = []
        missing = count
        for used in self._used:
            while missing and used and used[0][0] <= self._batch - self.window_batches:
                batch, entries = used.popleft()
                looked_through.append((used, (batch, entries)))
                # Slots that were never used are never stale; skipping the check is faster for a large cache.
                slots = entries if batch == NEVER else entries[self._last_use[entries] == batch]
                self._entries -= len(entries)
                if len(slots) > missing:
                    used.appendleft((batch, slots[missing:]))
                    self._entries += len(slots) - missing
                taken.append(slots[:missing])
                missing -= len(taken[-1])
        if missing:
            for used, entry in reversed(looked_through):
                used.appendleft(entry)
                self._entries += len(entry[1])
            needed = np.count_nonzero(self._last_use > self._batch - self.window_batches) + count
            raise TooLargeError(
                f"The embedding cache of {self.slots} rows cannot hold the {needed} rows of {self.window_batches} "
                f"batches in progress: raise --embedding-memory, or lower the batch size."
            )
        return np.concatenate(taken)

    def _by_level(self, rows: np.ndarray, slots: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return pairs of a level and its rows' slots, by ascending level; within a level in the given order."""
        if self._levels is None:
            return [(0, slots)]
        levels = self._levels[rows]
        order = np.argsort(levels, kind="stable")  # a fast radix sort, because levels are bytes
        levels, slots = levels[order], slots[order]
        bounds = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist(), len(levels)]
        return [(int(levels[begin]), slots[begin:end]) for begin, end in pairwise(bounds) if end > begin]

    def _drop_stale(self) -> None:
        """Remove slots that a later batch has used again from the eviction queues."""
        for level, used in enumerate(self._used):
            alive = ((batch, entries[self._last_use[entries] == batch]) for batch, entries in used)
            self._used[level] = deque((batch, entries) for batch, entries in alive if len(entries))
        self._entries = sum(len(entries) for used in self._used for _, entries in used)
