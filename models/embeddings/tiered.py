"""Embedding tables in a file, of which the rows in work lie in memory (`shunter.models.embeddings.tiers`).

Any in-memory kernel trains the rows in memory; it sees slots as ids. A batch is first admitted by a background thread,
which brings its rows into slots and renumbers its ids, and later trained. In between, other batches may be trained and
admitted. There is no hazard between the two, because they never touch the same slot: a trained batch works on its own
slots only, and its slots are given to other rows only after it has left the window of `EmbeddingCache.window_batches`.
Nor is there one within admission: one thread at a time writes leaving rows back before it fetches arriving ones. So the
arithmetic is that of the in-memory kernel, row by row and bit by bit.

Where the cache is too small for the window, a batch waits: its rows are brought when it is its turn to be trained, and
every batch before it is done. Those behind it wait as well, until the cache has room for them again. So a cache has to
hold the rows of one batch only; what a smaller window costs is the time of the transfer, beside no step.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from shunter.errors import RequestError, TooLargeError
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.embeddings.initial_weights import RowsByThemselves, draw_tables
from shunter.models.embeddings.mapped import sum_of_rows
from shunter.models.embeddings.pooled import build_embeddings
from shunter.models.embeddings.request import EmbeddingCache, Kernel, TableRequest
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.shards import Shard
from shunter.models.embeddings.tiers import RowTiers, check_cache


class _Admitted(NamedTuple):
    """A batch that waits for its training.

    Attributes:
        slots: Its ids in slots, int32; written when its rows have them.
        rows: Its distinct rows.
        position: Where among them the row of each id is.
        is_there: Whether the rows lie in their slots.
    """

    slots: Tensor
    rows: np.ndarray
    position: np.ndarray
    is_there: bool = False


class TieredEmbeddings(EmbeddingTables):
    """Tables in a file behind an in-memory kernel over the slots of a cache.

    In training mode it looks up what `admit` returned, batch by batch in the same order; in evaluation mode it takes
    ids, and reads the rows from the file without disturbing the cache.

    `state_dict` and a lookup in evaluation mode write all cached rows to the file first, so `weight` and after them
    `adagrad_sum` are those of the last trained batch. At other times they lag behind. Rows of large tables are drawn
    when they are first touched, or all of them when somebody asks for all: `state_dict`, `tables`, `shards`.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        learning_rate: Step size of the row-wise Adagrad.
        device: The CPU.
        cache: Size of the cache and place of the file.
        kernel: Library that does the lookups of the rows in memory.
        table_of: See `EmbeddingTables`.

    Raises:
        RequestError: The cache has no row, or the device is not the CPU.
        HardwareError: There is no room for the file.
    """

    is_in_memory = False

    def __init__(
        self,
        rows: Sequence[int],
        dim: int,
        *,
        learning_rate: float,
        device: torch.device,
        cache: EmbeddingCache,
        kernel: Kernel = "auto",
        table_of: Sequence[int] | None = None,
    ) -> None:
        super().__init__(rows, dim, learning_rate, table_of)
        check_cache(cache, device)
        total, slots = sum(rows), min(cache.rows, sum(rows))
        # Slot 0 stays empty, for the plain torch kernel adds zeros to row 0 while other slots are being filled.
        # Not part of the module tree: what is saved are the tables, not the cache.
        self._kernel = (build_embeddings((slots + 1,), dim, learning_rate=learning_rate, device=device, kernel=kernel),)
        self.decays_rows = self._kernel[0].decays_rows
        kernel_weight, kernel_sum = self._kernel[0].weight[1:], self._kernel[0].adagrad_sum[1:]
        self._tiers = RowTiers(total, dim, cache, kernel_weight, kernel_sum)
        self.register_buffer("weight", self._tiers.weight)
        self.register_buffer("adagrad_sum", self._tiers.adagrad_sum, persistent=False)
        self._bag_starts = np.cumsum((0, *rows[:-1]))[list(self.table_of)]
        self._admitted: deque[_Admitted] = deque()
        self._in_work: _Admitted | None = None
        self.register_state_dict_pre_hook(_complete_first)

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Whether the tables lie behind a cache.

        Raises:
            RequestError: They do, and are not of one width with a row for each id.
        """
        if wanted.cache is not None and wanted.is_mixed:
            raise RequestError(
                "Embedding tables in a file are of one width with a row for each id: leave out --embedding-memory, or "
                "table_dims and table_shares."
            )
        return wanted.cache is not None

    @classmethod
    def of(cls, wanted: TableRequest) -> Self:
        """Build uninitialised tables."""
        assert wanted.cache is not None, "without a cache the tables lie in memory"
        return cls(
            wanted.rows,
            wanted.dim,
            learning_rate=wanted.learning_rate,
            device=wanted.device,
            kernel=wanted.kernel,
            table_of=wanted.table_of,
            cache=wanted.cache,
        )

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """The weights of each table, in the file."""
        self._tiers.begin_all()
        return super().tables

    @property
    def cache_counts(self) -> CacheCounts:
        """What the cache did so far."""
        return self._tiers.counts

    def freeze_tables(self, tables: Collection[int]) -> None:
        """Let these tables learn nothing; the kernel, which sees slots and no tables, then decays no rows."""
        super().freeze_tables(tables)
        self.decays_rows = self._kernel[0].decays_rows and not tables

    def begin(self) -> None:
        """Start a sequence of batches: those admitted and not trained are dropped, and no earlier one is in work."""
        with self._tiers.lock:
            self._admitted.clear()
            self._tiers.leave_window()

    @torch.no_grad()
    def admit(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Bring the rows of a batch into memory; may run in another thread than training.

        Args:
            values: Ids, table by table and sample by sample within a table.
            offsets: `[tables * batch + 1]`, where each bag starts in `values`, and the end.

        Returns:
            The same in slots, int32: what `forward` takes in training mode.

        Raises:
            TooLargeError: The rows of the batch alone are more than the cache holds.
        """
        import pandas as pd

        position, distinct = pd.factorize(self._rows_of(values, offsets))
        if len(distinct) > self._tiers.slots:
            raise TooLargeError(
                f"The embedding cache of {self._tiers.slots:,} rows cannot hold the {len(distinct):,} rows of one "
                f"batch: raise --embedding-memory, or lower the batch size."
            )
        slots = torch.empty(len(position), dtype=torch.int32)
        with self._tiers.lock:
            self._admitted.append(_Admitted(slots, np.asarray(distinct), position))
            self._bring_waiting()
        return slots

    def _bring_waiting(self, *, is_alone: bool = False) -> None:
        """Give slots to the batches that have none, first come first, as far as the cache has room.

        Args:
            is_alone: Whether every batch before the first that waits is done.
        """
        for place, batch in enumerate(self._admitted):
            if batch.is_there:
                continue
            if is_alone:
                self._tiers.leave_window()
                is_alone = False
            try:
                slots = self._tiers.bring(batch.rows)
            except TooLargeError:
                return
            np.add(slots[batch.position], 1, out=batch.slots.numpy())
            self._admitted[place] = batch._replace(is_there=True)
            self._tiers.counts.lookups += len(batch.position)

    def rows_of_batch(self, values: Tensor, offsets: Tensor) -> Tensor:
        """The rows of the batch that is trained next."""
        assert values is self._admitted[0].slots, "batches are trained in the order in which they were admitted"
        return torch.from_numpy(self._admitted[0].rows)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag."""
        if self.training:
            assert self._admitted, "in training mode a batch is admitted before it is looked up"
            assert values is self._admitted[0].slots, "batches are trained in the order in which they were admitted"
            with self._tiers.lock:
                if not self._admitted[0].is_there:
                    self._bring_waiting(is_alone=True)
                self._in_work = self._admitted.popleft()
            self._tiers.note_trained()
            self._kernel[0].l2 = self.row_l2
            pooled = self._kernel[0](values, offsets, weights)
        else:
            self.flush()
            numbers = self._rows_of(values, offsets)
            with self._tiers.lock:
                self._tiers.begin(numbers)
            rows = torch.from_numpy(numbers)
            pooled = sum_of_rows(self.weight, rows, offsets, weights)
            self._tiers.note_touched(len(rows))
        return pooled.view(len(self.table_of), -1, self.dim).transpose(0, 1).flatten(1)

    def _row_of_each(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Of what `lookup` was given last."""
        batch = self._in_work if self.training else None
        return super()._row_of_each(values, offsets) if batch is None else torch.from_numpy(batch.rows[batch.position])

    def set_learning_rate(self, rate: float) -> None:
        """Also in the kernel of the rows in memory."""
        super().set_learning_rate(rate)
        self._kernel[0].set_learning_rate(rate)

    def flush(self) -> None:
        """Write all cached rows to the file; see `RowTiers.flush`."""
        self._tiers.flush()

    def _complete(self) -> None:
        """Bring the file up to date, with all rows."""
        self._tiers.begin_all()

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **options: Any) -> None:
        """Where the weights are among what is loaded, they are all of them."""
        super()._load_from_state_dict(state_dict, prefix, *args, **options)
        if f"{prefix}weight" in state_dict:
            self._tiers.note_all_written()
            self.forget_rows()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state, in the file."""
        self._complete()
        return super().optimizer_tensors()

    def load_optimizer_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the optimiser's state into the file, and forget what the cache holds of it."""
        self.flush()
        self.adagrad_sum.copy_(tensors["adagrad_sum"])
        self.forget_rows()

    def shards(self) -> Iterator[Shard]:
        """The tables in the file; the cache is flushed first."""
        self._complete()
        return super().shards()

    def begun_shards(self) -> Iterator[Shard]:
        """The tables in the file; the cache is flushed first."""
        self.flush()
        parts = zip(self.weight.split(self.rows), self.adagrad_sum.split(self.rows), strict=True)
        for table, (weight, sums) in enumerate(parts):
            starts = self._tiers.starts(sum(self.rows[:table]), len(weight))
            yield Shard(
                table=table,
                first_row=0,
                first_column=0,
                weight=weight,
                adagrad_sum=sums,
                replicated=True,
                starts=starts,
            )

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the tables as every kind does, into the file; large ones later."""
        self.forget_rows()
        self._tiers.start_anew()
        starts = [0, *accumulate(self.rows)]

        def later(table: RowsByThemselves) -> None:
            self._tiers.add_start(table, first=starts[table.table], rows=table.rows)

        for table, first_row, drawn in draw_tables(self.rows, self.dim, generator, self.initial_bound, later=later):
            first = starts[table] + first_row
            self.weight[first : first + len(drawn)] = drawn
            self.adagrad_sum[first : first + len(drawn)] = 0.0
        self._tiers.leave_pages()

    def draw_again(self) -> None:
        """Those of large tables, when they are next touched."""
        self._tiers.as_drawn()
        self.forget_rows()

    def forget_rows(self) -> None:
        """Empty the cache without writing it back."""
        with self._tiers.lock:
            self._tiers.forget()
            self._admitted.clear()

    def _rows_of(self, values: Tensor, offsets: Tensor) -> np.ndarray:
        """Row in `weight` of each id."""
        batch = (len(offsets) - 1) // len(self.table_of)
        ids_of_bag = np.diff(offsets[::batch].numpy())
        return values.numpy() + np.repeat(self._bag_starts, ids_of_bag)


def _complete_first(module: nn.Module, *_: Any) -> None:
    assert isinstance(module, TieredEmbeddings)
    module._complete()
