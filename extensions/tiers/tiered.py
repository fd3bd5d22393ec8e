"""Embedding tables in a file, with a row cache in memory for training (`shunter.extensions.tiers.tiers`).

Any in-memory kernel trains the rows in memory; its ids are slots of the cache. A background thread first admits a
batch: it loads the rows of the batch into slots and renumbers the ids. The batch is trained later, and other batches
may be trained and admitted in between. Training and admission never touch the same slot. A trained batch uses only its
own slots, and these are reassigned only after the batch has left the window of `EmbeddingCache.window_batches`. Within
admission, one thread at a time writes evicted rows back before it reads new rows. So the results are bitwise equal to
those of the in-memory kernel.

If the cache is too small for the window, a batch waits: its rows are loaded when every batch before it is trained.
Later batches wait too, until the cache has room again. So the cache only needs to hold the rows of one batch; with a
smaller window the transfer takes time that no training step hides.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from shunter.errors import RequestError, TooLargeError
from shunter.extensions.tiers.tiers import RowTiers, check_cache
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.embeddings.initial_weights import IndependentRows, draw_tables
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.embeddings.mapped import sum_of_rows
from shunter.models.embeddings.request import EmbeddingCache, Kernel, TableRequest
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.shards import Shard


class _Admitted(NamedTuple):
    """Admitted batch that waits for training."""

    slots: Tensor  # of each id, int32; written when the rows have slots
    rows: np.ndarray  # distinct rows of the batch
    position: np.ndarray  # index of each id's row in `rows`
    is_there: bool = False  # whether the rows have been loaded into their slots


class TieredEmbeddings(EmbeddingTables):
    """Tables in a file, with an in-memory kernel over the slots of a cache.

    In training mode a lookup takes the return values of `admit`, in the same order. In evaluation mode it takes ids,
    and reads the rows from the file without changing the cache.

    `state_dict` and a lookup in evaluation mode first write all cached rows to the file, so that `weight` and
    `adagrad_sum` are those of the last trained batch. At other times they may be older. Rows of large tables are drawn
    at their first lookup, or all of them when `state_dict`, `tables` or `shards` is called.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device, which must be the CPU.
        cache: Size of the cache and folder of the file.
        kernel: Library of the lookups in memory.
        table_of: See `EmbeddingTables`.

    Raises:
        RequestError: The cache has no row, or the device is not the CPU.
        HardwareError: There is not enough disk space for the file.
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
        # Slot 0 stays empty, because the plain torch kernel adds zeros to row 0 while other slots are being filled.
        # The kernel is kept out of the module tree, since the tables are saved and not the cache.
        self._kernel = (build_embeddings((slots + 1,), dim, learning_rate=learning_rate, device=device, kernel=kernel),)
        self.decays_rows = self._kernel[0].decays_rows
        kernel_weight, kernel_sum = self._kernel[0].weight[1:], self._kernel[0].adagrad_sum[1:]
        self._tiers = RowTiers(total, dim, cache, kernel_weight, kernel_sum)
        self.register_buffer("weight", self._tiers.weight)
        self.register_buffer("adagrad_sum", self._tiers.adagrad_sum, persistent=False)
        self._admitted: deque[_Admitted] = deque()
        self._in_work: _Admitted | None = None
        self.register_state_dict_pre_hook(_complete_first)

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Return True if tables with a row cache are requested, which are stored in a file.

        Raises:
            RequestError: A cache is requested for tables of several widths or with shared rows.
        """
        if wanted.cache is not None and wanted.is_mixed:
            raise RequestError(
                "Embedding tables in a file need one width and a row for each id: leave out "
                "--embedding-memory, or table_dims and table_shares."
            )
        return wanted.cache is not None

    @classmethod
    def of(cls, wanted: TableRequest) -> Self:
        """Build embedding tables with uninitialised weights."""
        assert wanted.cache is not None, "without a cache the tables are in memory"
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
        """Weights of each table, in the file."""
        self._tiers.begin_all()
        return super().tables

    @property
    def cache_counts(self) -> CacheCounts:
        """Hits, misses and transfers of the row cache so far."""
        return self._tiers.counts

    def freeze_tables(self, tables: Collection[int]) -> None:
        """Exclude tables from training. Weight decay is then off for all, as the kernel cannot distinguish tables."""
        super().freeze_tables(tables)
        self.decays_rows = self._kernel[0].decays_rows and not tables

    def begin(self) -> None:
        """Start a sequence of batches; admitted but untrained batches are dropped, and the window is emptied."""
        with self._tiers.lock:
            self._admitted.clear()
            self._tiers.leave_window()

    @torch.no_grad()
    def admit(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Load the rows of a batch into memory; may run in another thread than training.

        Args:
            values: Ids, ordered by table and then by sample.
            offsets: `[tables * batch + 1]`, start of each bag in `values`, and the end.

        Returns:
            Slots of the ids, int32, which `forward` takes in training mode.

        Raises:
            TooLargeError: The batch alone has more rows than the cache.
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
        """Assign slots to waiting batches, as far as there is room; `is_alone`: all batches before are trained."""
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
        """Return the distinct row numbers of the batch that is trained next."""
        assert values is self._admitted[0].slots, "batches are trained in the order in which they were admitted"
        return torch.from_numpy(self._admitted[0].rows)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the sum of the embedding rows of each bag, `[batch, bags of a sample * dim]`."""
        if self.training:
            assert self._admitted, "in training mode a batch is admitted before it is looked up"
            assert values is self._admitted[0].slots, "batches are trained in the order in which they were admitted"
            with self._tiers.lock:
                if not self._admitted[0].is_there:
                    self._bring_waiting(is_alone=True)
                self._in_work = self._admitted.popleft()
            self._tiers.mark_stale()
            self._kernel[0].l2 = self.row_l2
            pooled = self._kernel[0](values, offsets, weights)
        else:
            self.flush()
            numbers = self._rows_of(values, offsets)
            with self._tiers.lock:
                self._tiers.begin(numbers)
            rows = torch.from_numpy(numbers)
            pooled = sum_of_rows(self.weight, rows, offsets, weights)
            self._tiers.count_touched(len(rows))
        return pooled.view(len(self.table_of), -1, self.dim).transpose(0, 1).flatten(1)

    def _row_of_each(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the row of each id of the last `lookup`, numbered through all tables."""
        batch = self._in_work if self.training else None
        return super()._row_of_each(values, offsets) if batch is None else torch.from_numpy(batch.rows[batch.position])

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate, also in the kernel of the rows in memory."""
        super().set_learning_rate(rate)
        self._kernel[0].set_learning_rate(rate)

    def flush(self) -> None:
        """Write all cached rows to the file, if a batch was trained since the last flush."""
        self._tiers.flush()

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **options: Any) -> None:
        """Load a state dict; if it contains the weights, mark all rows of the file as initialised."""
        super()._load_from_state_dict(state_dict, prefix, *args, **options)
        if f"{prefix}weight" in state_dict:
            self._tiers.record_all_written()
            self.forget_rows()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Return the optimiser state of the tables, which is stored in the file."""
        self._tiers.begin_all()
        return super().optimizer_tensors()

    def load_optimizer_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the optimiser state into the file, and drop cached rows."""
        self.flush()
        self.adagrad_sum.copy_(tensors["adagrad_sum"])
        self.forget_rows()

    def shards(self) -> Iterator[Shard]:
        """Yield the tables in the file, with all rows; the cache is flushed first."""
        self._tiers.begin_all()
        return super().shards()

    def initialised_shards(self) -> Iterator[Shard]:
        """Yield the tables in the file after a flush of the cache; rows never looked up stay uninitialised."""
        self.flush()
        parts = zip(self.weight.split(self.rows), self.adagrad_sum.split(self.rows), strict=True)
        for table, (weight, sums) in enumerate(parts):
            starts = self._tiers.starts(sum(self.rows[:table]), len(weight))
            place = {"table": table, "first_row": 0, "first_column": 0, "replicated": True}
            yield Shard(**place, weight=weight, adagrad_sum=sums, starts=starts)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the same initial weights as in-memory tables, into the file; rows of large tables are drawn later."""
        self.forget_rows()
        self._tiers.start_anew()
        starts = [0, *accumulate(self.rows)]

        def later(table: IndependentRows) -> None:
            self._tiers.add_start(table, first=starts[table.table], rows=table.rows)

        for table, first_row, drawn in draw_tables(self.rows, self.dim, generator, self.initial_bound, later=later):
            first = starts[table] + first_row
            self.weight[first : first + len(drawn)] = drawn
            self.adagrad_sum[first : first + len(drawn)] = 0.0
        self._tiers.leave_pages()

    def draw_again(self) -> None:
        """Reset the rows of large tables to their initial weights, drawn at their next lookup."""
        self._tiers.as_drawn()
        self.forget_rows()

    def forget_rows(self) -> None:
        """Empty the cache without writing its rows to the file."""
        with self._tiers.lock:
            self._tiers.forget()
            self._admitted.clear()

    def _rows_of(self, values: Tensor, offsets: Tensor) -> np.ndarray:
        """Return for each id the index of its row in `weight`."""
        return super()._row_of_each(values, offsets).numpy()


def _complete_first(module: nn.Module, *_: Any) -> None:
    assert isinstance(module, TieredEmbeddings)
    module._tiers.begin_all()
