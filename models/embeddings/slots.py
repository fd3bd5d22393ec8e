"""Which row of a large table lies in which slot of a small one: the book-keeping of a cache, without its memory."""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shunter.errors import TooLargeError
from shunter.models.embeddings.row_use import LEVELS

# Where a row is that has no slot, and one that has not begun: nobody has asked for it, and the file lacks it too. A
# slot whose row the file lacks has the row's number negative, this much below zero.
NOWHERE, UNBEGUN, UNWRITTEN = -1, -2, -3
# What the book-keeping itself takes: a place and a level for each row, and for each slot its row, last use and entries.
BYTES_A_ROW, BYTES_A_SLOT = 5, 28
# Batches are numbered from 0; the slots that were never used come before all of them.
NEVER = np.iinfo(np.int64).min
_Entry = tuple[int, np.ndarray]  # slots that a batch used


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What a batch asks the cache to do: first write `leaving` back, then fetch `arriving`.

    Attributes:
        slots: `[distinct rows of the batch]` where each row lies from now on.
        arriving: Rows that were not there.
        arriving_slots: Slots where they go.
        is_new: Of each whether it has not begun, so that the file lacks it.
        leaving: Rows that make room; at most as many as `arriving`.
        leaving_slots: Slots where they lay.
    """

    slots: np.ndarray
    arriving: np.ndarray
    arriving_slots: np.ndarray
    is_new: np.ndarray
    leaving: np.ndarray
    leaving_slots: np.ndarray


class SlotMap:
    """Gives slots to the rows of one batch after the other.

    The batches of the window, the one at hand and those admitted just before it, keep their slots: their rows may
    still be read and written. Of all other slots those of the lowest level are given away first, and among these the
    least recently used, which is exact to the batch; within a batch, rows go in the order in which they were given.

    Args:
        rows: Rows of the large table.
        slots: Rows of the small one.
        window_batches: Batches that keep their slots, at least 1.
        levels: uint8 `[rows]`, how often each row is expected to be asked for (`shunter.models.embeddings.row_use`);
            None takes all alike, so that the least recently used goes.

    Attributes:
        unbegun: How many rows the file lacks, those in slots that were never written back among them; at first none.
    """

    def __init__(self, rows: int, slots: int, window_batches: int, levels: np.ndarray | None = None) -> None:
        assert window_batches >= 1, "the batch at hand is part of the window"
        assert levels is None or (levels.shape == (rows,) and levels.dtype == np.uint8), "a level of each row"
        self.slots = slots
        self.window_batches = window_batches
        self._levels = levels
        self.unbegun = 0
        self._slot_of_row = np.full(rows, NOWHERE, dtype=np.int32)
        self._row_of_slot = np.empty(slots, dtype=np.int64)
        self._last_use = np.empty(slots, dtype=np.int64)
        self.clear()

    def clear(self) -> None:
        """Forget all rows, but not which the file lacks; also what makes the map whole again after an error."""
        self._batch = 0
        rows, slots = self.residents()
        self._slot_of_row[rows] = np.where(self._row_of_slot[slots] < NOWHERE, UNBEGUN, NOWHERE)
        self._row_of_slot.fill(NOWHERE)
        self._last_use.fill(NEVER)
        # Of each level slots by the batch that used them, oldest first; stale once `_last_use` says otherwise. A slot
        # that was never used is on the lowest.
        self._used: list[deque[_Entry]] = [deque() for _ in range(1 if self._levels is None else LEVELS)]
        self._used[0].append((NEVER, np.arange(self.slots, dtype=np.int32)))
        self._entries = self.slots

    def have_begun(self, rows: np.ndarray | slice) -> np.ndarray:
        """Whether the file holds each of some rows."""
        slots = self._slot_of_row[rows]
        found, in_slots = slots != UNBEGUN, np.flatnonzero(slots >= 0)  # of all rows these are few
        found[in_slots] = self._row_of_slot[slots[in_slots]] >= NOWHERE
        return found

    def note_begun(self, rows: np.ndarray) -> None:
        """The file holds distinct rows now, if it did not."""
        new = rows[~self.have_begun(rows)]
        slots = self._slot_of_row[new]
        self._slot_of_row[new[slots < 0]] = NOWHERE
        self._row_of_slot[slots[slots >= 0]] = new[slots >= 0]
        self.unbegun -= len(new)

    def note_all_begun(self) -> None:
        """The file holds all rows."""
        self._slot_of_row[self._slot_of_row == UNBEGUN] = NOWHERE
        rows, slots = self.residents()
        self._row_of_slot[slots] = rows
        self.unbegun = 0

    def note_unbegun(self, first: int, last: int) -> None:
        """No row of a range has begun; the map was cleared before."""
        self.unbegun += int(np.count_nonzero(self.have_begun(slice(first, last))))
        self._slot_of_row[first:last] = UNBEGUN

    def leave_window(self) -> None:
        """Let go of all batches admitted so far: nobody works on their slots any more."""
        self._batch += self.window_batches

    def admit(self, rows: np.ndarray) -> Admission:
        """Give a slot to each row of the next batch.

        Args:
            rows: The batch's rows, each once.

        Raises:
            TooLargeError: The rows of the window are more than there are slots; then nothing has changed.
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
        is_new = self._slot_of_row[arriving] == UNBEGUN
        leaving = self._row_of_slot[arriving_slots]
        is_unwritten = leaving < NOWHERE
        self.unbegun -= int(np.count_nonzero(is_unwritten))
        leaving[is_unwritten] = UNWRITTEN - leaving[is_unwritten]
        is_taken = leaving != NOWHERE
        self._slot_of_row[leaving[is_taken]] = NOWHERE
        self._slot_of_row[arriving] = arriving_slots
        self._row_of_slot[arriving_slots] = np.where(is_new, UNWRITTEN - arriving, arriving)
        self._last_use[arriving_slots] = self._batch
        slots[missing] = arriving_slots
        self._note_use(rows, slots)
        return Admission(
            slots=slots,
            arriving=arriving,
            arriving_slots=arriving_slots,
            is_new=is_new,
            leaving=leaving[is_taken],
            leaving_slots=arriving_slots[is_taken],
        )

    def residents(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows that have a slot, in ascending order, and their slots."""
        rows = np.flatnonzero(self._slot_of_row >= 0)
        return rows, self._slot_of_row[rows]

    def _take(self, count: int) -> np.ndarray:
        """Take the slots that are missed least of those not in the window; all that are asked for, or none."""
        taken = [np.empty(0, dtype=np.int32)]
        looked_through: list[tuple[deque[_Entry], _Entry]] = []
        missing = count
        for used in self._used:
            while missing and used and used[0][0] <= self._batch - self.window_batches:
                batch, entries = used.popleft()
                looked_through.append((used, (batch, entries)))
                # Those that were never used are so still: of a large cache they need not be looked through each time.
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
            raise TooLargeError(self._too_small(count))
        return np.concatenate(taken)

    def _note_use(self, rows: np.ndarray, slots: np.ndarray) -> None:
        for level, part in self._by_level(rows, slots):
            self._used[level].append((self._batch, part))
        self._entries += len(slots)
        self._batch += 1
        if self._entries > 2 * self.slots + len(slots):  # so that the entries stay bounded where all rows are found
            self._used = [self._alive(used) for used in self._used]
            self._entries = sum(len(entries) for used in self._used for _, entries in used)

    def _by_level(self, rows: np.ndarray, slots: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """The slots of some rows in parts of one level, each in the order given."""
        if self._levels is None:
            return [(0, slots)]
        levels = self._levels[rows]
        order = np.argsort(levels, kind="stable")  # by radix, for they are of one byte
        levels, slots = levels[order], slots[order]
        bounds = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist(), len(levels)]
        return [(int(levels[begin]), slots[begin:end]) for begin, end in pairwise(bounds) if end > begin]

    def _alive(self, used: deque[_Entry]) -> deque[_Entry]:
        """Without what is stale."""
        alive = ((batch, entries[self._last_use[entries] == batch]) for batch, entries in used)
        return deque((batch, entries) for batch, entries in alive if len(entries))

    def _too_small(self, arriving: int) -> str:
        needed = np.count_nonzero(self._last_use > self._batch - self.window_batches) + arriving
        return (
            f"The embedding cache of {self.slots} rows cannot hold the {needed} rows of {self.window_batches} batches "
            f"in work: raise --embedding-memory, or lower the batch size."
        )
