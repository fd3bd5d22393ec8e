"""Embedding rows that steps have touched, and the policies that select the rows of the next checkpoint.

Row-wise Adagrad changes only the rows that a batch looks up. The looked-up rows are therefore all rows that can differ
from an earlier checkpoint. A row is recorded even if its gradient is zero: too many rows are recorded, never too few.

Policies: all rows, or those touched since the last full or the last checkpoint.

    full            all rows each time
    one-shot        all rows once, then those touched since then: two parts are enough to restore, and each grows
    consecutive     all rows once, then those touched since the last checkpoint: parts are small, a restore needs all
    intermittent    one-shot, and all rows again as soon as a full checkpoint is expected to cost less
    auto            consecutive, separately for each of several ranges of rows; full ranges are written in turn

The first four policies are those of Check-N-Run (Eisenman et al., NSDI 2022). `auto` writes fewer bytes than these, and
stores hardly more than 1.5 x the bytes of a full checkpoint, however long the training run. As soon as all ranges
together would exceed that, the range whose parts have grown most is written in full and its older files are removed. So
no later checkpoint is full. Log-structured file systems clean segments in the same way (Rosenblum and Ousterhout, SOSP
1991).

Where intervals touch the same rows repeatedly, a part since the last full checkpoint costs hardly more than a part
since the last checkpoint. It also replaces all parts between. `auto` then writes the rows since the last full
checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shunter.engine.checkpoint.checkpoint_settings import RowSelection
from shunter.engine.checkpoint.generations import Content
from shunter.models.embeddings.role import EmbeddingTables

# `auto` writes the rows since the last full checkpoint if they are at most this many times those since the last one.
SAME_ROWS = 1.1
# Bytes that `auto` stores beyond one full copy, as a share of it: with one range, and with many ranges written in turn.
KEPT_BEYOND_ALL, KEPT_BEYOND_ALL_IN_TURN = 1.0, 0.5
History = list[list[float]]


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

    def notes(self) -> list[np.ndarray]:
        """Return a copy of the record, with one bit per row instead of one byte."""
        return [np.packbits(noted.cpu().numpy()) for noted in (self._since_last, self._since_full)]

    def add(self, notes: Sequence[np.ndarray]) -> None:
        """Mark the rows of a copy from `notes` as touched again, besides the rows recorded since."""
        for noted, packed in zip((self._since_last, self._since_full), notes, strict=True):
            noted.logical_or_(torch.from_numpy(np.unpackbits(packed, count=len(noted)).view(bool)).to(noted.device))


class RowsToStore(NamedTuple):
    """Rows to store in the next checkpoint: the content of each range, and a mask of all rows on the CPU."""

    contents: tuple[Content, ...]
    rows: Tensor


@dataclass(frozen=True, kw_only=True)
class TouchedShares:
    """Touched rows of a range, as shares of the range from 0 to 1.

    Attributes:
        parts: Share of rows in each checkpoint since the last full one, in order, without the full one.
        since_last: Share touched since the last checkpoint.
        since_full: Share touched since the last full checkpoint.
    """

    parts: Sequence[float]
    since_last: float
    since_full: float


def next_contents(policy: RowSelection, ranges: Sequence[TouchedShares]) -> list[Content]:
    """Return the content of the next checkpoint for each range of rows; all ranges are equally large.

    Args:
        policy: Checkpoint policy.
        ranges: Touched rows of each range.
    """
    if policy != "auto":
        return [_published_content(policy, one) for one in ranges]
    contents: list[Content] = [
        "since_full" if one.since_full <= SAME_ROWS * one.since_last else "since_last" for one in ranges
    ]
    grown = [
        one.since_full if content == "since_full" else sum(one.parts) + one.since_last
        for one, content in zip(ranges, contents, strict=True)
    ]
    most = len(ranges) * (KEPT_BEYOND_ALL if len(ranges) == 1 else KEPT_BEYOND_ALL_IN_TURN)
    while sum(grown) > most:
        largest = grown.index(max(grown))
        contents[largest], grown[largest] = "full", 0.0
    return contents


def _published_content(policy: RowSelection, growth: TouchedShares) -> Content:
    match policy:
        case "full":
            return "full"
        case "one-shot":
            return "since_full"
        case "consecutive":
            return "since_last"
        case "intermittent":
            # A full checkpoint now, followed by as many parts as so far, costs less, assuming that parts only grow.
            is_cheaper = 1 + sum(growth.parts) <= (len(growth.parts) + 1) * growth.since_full
            return "full" if is_cheaper else "since_full"
        case _:
            raise AssertionError(policy)


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
        self._before: tuple[list[np.ndarray], History, bool] | None = None

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
