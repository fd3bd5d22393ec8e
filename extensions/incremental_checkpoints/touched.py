"""Record of the embedding rows that steps have touched, which are the content of an incremental checkpoint.

Row-wise Adagrad changes only the rows that a batch looks up. The looked-up rows are therefore all rows that can differ
from an earlier checkpoint. A row is recorded even if its gradient is zero: too many rows are recorded, never too few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.checkpoint_settings import RowSelection
from shunter.engine.checkpoint.generations import Content
from shunter.extensions.incremental_checkpoints.incremental_policy import TouchedShares, next_contents
from shunter.models.embeddings.role import EmbeddingTables


class TouchedRows:
    """Record of touched rows; it takes two bytes of memory per row, and one write per id and step.

    Args:
        tables: Tables whose rows are recorded.
        device: Device of the batches.
    """

    def __init__(self, tables: EmbeddingTables, device: torch.device) -> None:
        self._tables = tables
        self._since_last = torch.zeros(sum(tables.rows), dtype=torch.bool, device=device)
        self._since_full = torch.zeros_like(self._since_last)

    def __len__(self) -> int:
        """Return the number of embedding rows."""
        return len(self._since_last)

    def note(self, rows: Tensor) -> None:
        """Record the rows of a batch, right before its training step.

        Args:
            rows: int64, numbered through all tables, with or without repetition.
        """
        self._since_last[rows] = True

    def record_all(self, is_touched: Tensor) -> None:
        """Record the rows at which `is_touched`, bool of all rows, is True."""
        self._since_last |= is_touched.to(self._since_last.device)

    def record_rows(self, table: int, rows: Tensor) -> None:
        """Record rows of one table, int64 `[rows]`."""
        first = sum(self._tables.rows[:table])
        self._since_last[(rows + first).to(self._since_last.device)] = True

    def shares(self, bounds: Sequence[int]) -> list[tuple[float, float]]:
        """Return for each range the share of rows touched since its last checkpoint, and since its last full one.

        Args:
            bounds: First row of each range, and the end of the last range.
        """
        either = self._since_last | self._since_full
        counted = [
            (int(self._since_last[first:last].count_nonzero()), int(either[first:last].count_nonzero()), last - first)
            for first, last in pairwise(bounds)
        ]
        return [(since_last / rows, since_full / rows) for since_last, since_full, rows in counted]

    def since_last(self) -> Tensor:
        """Return a copy of the rows of all tables touched since the last checkpoint, bool on the CPU."""
        return self._since_last.to("cpu", copy=True)

    def begin_interval(self, first: int, last: int, content: Content) -> Tensor:
        """Start a new interval for the rows from `first` to `last` (excluded).

        Returns:
            Rows that a checkpoint with this content must store, bool `[rows of the range]` on the CPU.
        """
        since_last, since_full = self._since_last[first:last], self._since_full[first:last]
        since_full |= since_last
        kept = torch.ones_like(since_last) if content == "full" else since_full
        wanted = (since_last if content == "since_last" else kept).to("cpu", copy=True)
        if content == "full":
            since_full.zero_()
        since_last.zero_()
        return wanted

    def notes(self) -> "TouchedBits":
        """Return a copy of the record, with one bit per row instead of one byte."""
        return TouchedBits(*(np.packbits(noted.cpu().numpy()) for noted in (self._since_last, self._since_full)))

    def add(self, notes: "TouchedBits") -> None:
        """Mark the rows of a copy from `notes` as touched again, besides the rows recorded since."""
        for noted, packed in ((self._since_last, notes.since_last), (self._since_full, notes.since_full)):
            noted.logical_or_(torch.from_numpy(np.unpackbits(packed, count=len(noted)).view(bool)).to(noted.device))


@dataclass(frozen=True)
class TouchedBits:
    """Touched rows, one bit per row."""

    since_last: np.ndarray
    since_full: np.ndarray


@dataclass(frozen=True)
class RowsToStore:
    """Rows to store in the next checkpoint.

    Attributes:
        contents: For each range of rows, whether all rows are stored, or those touched since which checkpoint.
        rows: bool of all rows, on the CPU.
    """

    contents: tuple[Content, ...]
    rows: Tensor


History = list[list[float]]


class Intervals:
    """Selection of the rows of each checkpoint: in each range all rows, or those touched since its last (full) one.

    Args:
        touched: Record of the touched rows.
        policy: Checkpoint policy.
        ranges: Number of ranges that the rows are divided into, as equally as possible.

    Attributes:
        history: For each range, the share of rows in each checkpoint since its last full one; input of the policy.
        bounds: First row of each range, and the end of the last range.
    """

    def __init__(self, touched: TouchedRows, policy: RowSelection, ranges: int = 1) -> None:
        self.touched = touched
        self._policy: RowSelection = policy
        self.bounds = [len(touched) * number // ranges for number in range(ranges + 1)]
        self.history: History = [[] for _ in range(ranges)]
        self._has_base = False
        self._before: tuple[TouchedBits, History, bool] | None = None

    def next(self, *, all_rows: bool = False) -> RowsToStore:
        """Return the rows of the next checkpoint, and start a new interval; `undo` reverts this if writing failed.

        Args:
            all_rows: Whether all rows must be stored.
        """
        touched = self.touched
        self._before = touched.notes(), self.history, self._has_base
        growth = [
            TouchedShares(parts=parts, since_last=since_last, since_full=since_full)
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
        return RowsToStore(tuple(contents), torch.cat(rows))

    def undo(self) -> None:
        """Mark the rows of the last `next` as still to be stored, together with rows touched since."""
        assert self._before is not None, "there are rows to store"
        notes, self.history, self._has_base = self._before
        self.touched.add(notes)

    def resume(self, history: Sequence[Sequence[float]]) -> None:
        """Continue from a checkpoint, after the rows since its last full part have been recorded.

        Args:
            history: `history` at the checkpoint. If it has another number of ranges, all rows are stored next.
        """
        for first, last in pairwise(self.bounds):
            self.touched.begin_interval(first, last, "since_last")
        self._has_base = len(history) == len(self.history)
        if self._has_base:
            self.history = [list(parts) for parts in history]

    def _grown(self, growth: TouchedShares, content: Content) -> list[float]:
        match content:
            case "full":
                return []
            case "since_full":
                return [*([] if self._policy == "auto" else growth.parts), growth.since_full]
            case "since_last":
                return [*growth.parts, growth.since_last]
