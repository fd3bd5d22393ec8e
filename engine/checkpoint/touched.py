"""Which rows of embedding tables steps have touched: all that an incremental checkpoint has to hold.

Row-wise Adagrad changes the rows that a batch looks up and no others, so the looked-up rows are all that can differ
from an earlier checkpoint. A row is noted whether or not its gradient is zero: too many are noted, never too few.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from engine.checkpoint.growth import Content, Policy, next_content
from models.embeddings.role import EmbeddingTables


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

    @property
    def share_since_last(self) -> float:
        """Share of all rows touched since `begin_interval`."""
        return int(self._since_last.count_nonzero()) / len(self._since_last)

    @property
    def share_since_full(self) -> float:
        """Share of all rows touched since `begin_full`."""
        return int((self._since_last | self._since_full).count_nonzero()) / len(self._since_last)

    def rows(self, content: Literal["since_last", "since_full"]) -> Tensor:
        """The rows of all tables touched since the last checkpoint or the last full one: a copy, bool, on the CPU."""
        if content == "since_last":
            return self._since_last.to("cpu", copy=True)
        return (self._since_last | self._since_full).cpu()

    def begin_interval(self) -> None:
        """All noted so far has been kept."""
        self._since_full |= self._since_last
        self._since_last.zero_()

    def begin_full(self) -> None:
        """Everything has been kept."""
        self._since_full.zero_()
        self._since_last.zero_()


class Intervals:
    """Which rows each checkpoint holds: all of them, or those touched since the last full one or the last one.

    Args:
        touched: Notes them.
        policy: How it is decided.

    Attributes:
        history: Shares of all rows that were kept since all of them were; what the policy goes by.
    """

    def __init__(self, touched: TouchedRows, policy: Policy) -> None:
        self.touched = touched
        self._policy: Policy = policy
        self.history: list[float] = []
        self._has_base = False

    def next(self, *, all_rows: bool = False) -> tuple[Content, Tensor | None]:
        """What is kept next, bool of all rows or None for all; from here on a new interval counts.

        Args:
            all_rows: Whether all rows are asked for.
        """
        touched = self.touched
        since_last, since_full = touched.share_since_last, touched.share_since_full
        content: Content = "full"
        if self._has_base and not all_rows:
            content = next_content(self._policy, self.history, since_last, since_full)
        if content == "full":
            self.history, self._has_base = [], True
            touched.begin_full()
            return content, None
        rows = touched.rows(content)
        is_replaced = self._policy == "auto" and content == "since_full"
        self.history = [
            *([] if is_replaced else self.history),
            since_full if content == "since_full" else since_last,
        ]
        touched.begin_interval()
        return content, rows

    def go_on(self, history: Sequence[float]) -> None:
        """Go on from a checkpoint whose rows since the full one have been noted.

        Args:
            history: As it was then.
        """
        self.touched.begin_interval()
        self.history, self._has_base = list(history), True
