"""Which rows of embedding tables steps have touched: all that an incremental checkpoint has to hold.

Row-wise Adagrad changes the rows that a batch looks up and no others, so the looked-up rows are all that can differ
from an earlier checkpoint. A row is noted whether or not its gradient is zero: too many are noted, never too few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.growth import Content, Growth, Policy, next_contents
from shunter.models.embeddings.role import EmbeddingTables


class TouchedRows:
    """Notes the rows that steps touch; a row costs two bytes of memory, a step one write for each id.

    Args:
        tables: Tables whose rows are noted.
        device: Device of the batches.
    """

    def __init__(self, tables: EmbeddingTables, device: torch.device) -> None:
        self._tables = tables
        self._since_last = torch.zeros(sum(tables.rows), dtype=torch.bool, device=device)
        self._since_full = torch.zeros_like(self._since_last)

    def __len__(self) -> int:
        """Number of all rows."""
        return len(self._since_last)

    def note(self, rows: Tensor) -> None:
        """Note the rows of a batch, right before it is trained.

        Args:
            rows: int64, numbered through all tables; they may repeat.
        """
        self._since_last[rows] = True

    def note_all(self, is_touched: Tensor) -> None:
        """Note rows of all tables, bool of each."""
        self._since_last |= is_touched.to(self._since_last.device)

    def note_rows(self, table: int, rows: Tensor) -> None:
        """Note rows of one table, int64 `[rows]`."""
        first = sum(self._tables.rows[:table])
        self._since_last[(rows + first).to(self._since_last.device)] = True

    def shares(self, bounds: Sequence[int]) -> list[tuple[float, float]]:
        """Shares of each range of rows that were touched since its last checkpoint, and since its last full one.

        Args:
            bounds: Where the ranges begin, and where the last one ends.
        """
        either = self._since_last | self._since_full
        counted = [
            (int(self._since_last[first:last].count_nonzero()), int(either[first:last].count_nonzero()), last - first)
            for first, last in pairwise(bounds)
        ]
        return [(since_last / rows, since_full / rows) for since_last, since_full, rows in counted]

    def since_last(self) -> Tensor:
        """The rows of all tables touched since the last checkpoint: a copy, bool, on the CPU."""
        return self._since_last.to("cpu", copy=True)

    def begin_interval(self, first: int, last: int, content: Content) -> Tensor:
        """All noted so far of a range of rows is kept now; returns which rows that are, bool, on the CPU."""
        since_last, since_full = self._since_last[first:last], self._since_full[first:last]
        since_full |= since_last
        kept = torch.ones_like(since_last) if content == "full" else since_full
        wanted = (since_last if content == "since_last" else kept).to("cpu", copy=True)
        if content == "full":
            since_full.zero_()
        since_last.zero_()
        return wanted

    def notes(self) -> "Notes":
        """All that has been noted, in an eighth of the bytes."""
        return Notes(*(np.packbits(noted.cpu().numpy()) for noted in (self._since_last, self._since_full)))

    def add(self, notes: "Notes") -> None:
        """Note again what was noted once."""
        for noted, packed in ((self._since_last, notes.since_last), (self._since_full, notes.since_full)):
            noted.logical_or_(torch.from_numpy(np.unpackbits(packed, count=len(noted)).view(bool)).to(noted.device))


@dataclass(frozen=True)
class Notes:
    """Which rows had been touched: a bit of each."""

    since_last: np.ndarray
    since_full: np.ndarray


@dataclass(frozen=True)
class Wanted:
    """What is kept next.

    Attributes:
        contents: Which rows of each range.
        rows: bool of all rows, on the CPU.
    """

    contents: tuple[Content, ...]
    rows: Tensor


History = list[list[float]]


class Intervals:
    """Which rows each checkpoint holds: of each range all, or those touched since the last full one or the last.

    Args:
        touched: Notes them.
        policy: How it is decided.
        ranges: Into how many the rows are divided, as equally as can be.

    Attributes:
        history: Shares of each range that were kept since all of it was; what the policy goes by.
        bounds: Where the ranges begin, and where the last one ends.
    """

    def __init__(self, touched: TouchedRows, policy: Policy, ranges: int = 1) -> None:
        self.touched = touched
        self._policy: Policy = policy
        self.bounds = [len(touched) * number // ranges for number in range(ranges + 1)]
        self.history: History = [[] for _ in range(ranges)]
        self._has_base = False
        self._before: tuple[Notes, History, bool] | None = None

    def next(self, *, all_rows: bool = False) -> Wanted:
        """What is kept next; from here on a new interval counts, unless `undo` says that it was not kept.

        Args:
            all_rows: Whether all rows are asked for.
        """
        touched = self.touched
        self._before = touched.notes(), self.history, self._has_base
        growth = [
            Growth(parts=parts, since_last=since_last, since_full=since_full)
            for parts, (since_last, since_full) in zip(self.history, touched.shares(self.bounds), strict=True)
        ]
        contents: list[Content] = ["full"] * len(growth)
        if self._has_base and not all_rows:
            contents = next_contents(self._policy, growth)
        self.history = [self._grown(one, content) for one, content in zip(growth, contents, strict=True)]
        self._has_base = True
        rows = [
            touched.begin_interval(first, last, content)
            for (first, last), content in zip(pairwise(self.bounds), contents, strict=True)
        ]
        return Wanted(tuple(contents), torch.cat(rows))

    def undo(self) -> None:
        """What `next` gave last was not kept: its rows, and those touched meanwhile, are to be kept still."""
        assert self._before is not None, "something was to be kept"
        notes, self.history, self._has_base = self._before
        self.touched.add(notes)

    def go_on(self, history: Sequence[Sequence[float]]) -> None:
        """Go on from a checkpoint whose rows since the full one have been noted.

        Args:
            history: As it was then. Where its ranges are others, all rows are kept next.
        """
        for first, last in pairwise(self.bounds):
            self.touched.begin_interval(first, last, "since_last")
        self._has_base = len(history) == len(self.history)
        if self._has_base:
            self.history = [list(parts) for parts in history]

    def _grown(self, growth: Growth, content: Content) -> list[float]:
        match content:
            case "full":
                return []
            case "since_full":
                return [*([] if self._policy == "auto" else growth.parts), growth.since_full]
            case "since_last":
                return [*growth.parts, growth.since_last]
