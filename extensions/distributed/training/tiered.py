"""Embedding tables divided over processes; each process has its rows in a file, and a cache of them in memory.

TorchRec trains one table in memory, divided by row over the processes. Its rows are cache slots: each process has the
slots of its own cache (`shunter.extensions.tiers.tiers`). The rows of the model's tables belong to processes by block
(`shunter.extensions.tiers.tier_blocks`). The ids of a batch are renumbered before it is trained, in the prefetch
thread, by messages in a separate process group:

    1. the number of rows that each process requests from each other one, and whether all still train
    2. the rows, to their owners, which load the rows of all processes into slots
    3. whether all owners had free slots; if not, the batch waits until all batches before it are trained
    4. the slots, back to the requesting processes

A sum over a bag, a gradient and an update are then those of TorchRec with all tables divided by row in memory, bit by
bit: only the row numbers differ. Fields that share a table are the exception: TorchRec then sums gradients in another
order.

The end of a pass is a message too. A process that reads no further batch announces this at the next step 1 (`leave`),
since the readers of other processes may be one batch further.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist

from shunter.errors import TooLargeError, TrainingError
from shunter.extensions.distributed.tables.exchanged import exchanged, of_all
from shunter.extensions.distributed.tables.sharded import ShardedEmbeddings
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.extensions.distributed.training.plan import Sharding, make_plan
from shunter.extensions.tiers.tier_blocks import TierBlocks
from shunter.extensions.tiers.tiers import RowTiers, check_cache
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.embeddings.initial_weights import IndependentRows, draw_tables
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.shards import Shard, copy_block
from shunter.models.spec import TableShape

TOO_LARGE, WAITS, HAS_ROOM = range(3)


@dataclass(frozen=True)
class _Admitted:
    """Batch that waits for its training step.

    Attributes:
        slots: Slot of each id of this process, numbered over all processes.
        rows: Distinct rows of these ids, numbered through all tables.
        position: Index in `rows` of the row of each id.
    """

    slots: Tensor
    rows: np.ndarray
    position: np.ndarray


class TieredShards(EmbeddingTables):
    """Sharded embedding tables in files, with TorchRec's kernels over the rows cached in memory.

    All processes of the default group construct and call this together, with batches of equal size. In training mode it
    looks up the results of `admit`, batch by batch in the same order. In evaluation mode, outside of a pass, it takes
    ids and loads their rows into the cache. A batch with too many rows is split.

    Args:
        blocks: Rows of each table, and the processes that own them.
        cache: Number of rows in the memory of this process, batches in progress, and the path of the file.
        sharding: Precision of messages with pooled rows and gradients, and the processes of a node.

    Raises:
        RequestError: The cache has no row, or the device is not the CPU.
        HardwareError: There is no disk space for the file.
    """

    is_in_memory = False

    def __init__(
        self,
        blocks: TierBlocks,
        dim: int,
        *,
        learning_rate: float,
        device: torch.device,
        cache: EmbeddingCache,
        sharding: Sharding,
        table_of: Sequence[int] | None = None,
        is_weighted: bool = False,
    ) -> None:
        super().__init__(blocks.rows, dim, learning_rate, table_of)
        check_cache(cache, device)
        self._rank, self._processes = dist.get_rank(), dist.get_world_size()
        self._slots = cache.rows
        # In a tuple, for what is saved are the tables, not their cache.
        self._memory = (self._slot_table(device, sharding, is_weighted=is_weighted),)
        self._blocks = blocks
        self._starts = np.cumsum((0, *self.rows[:-1]))
        self._own_first, self._own_rows = blocks.own(self._rank)
        self._own_starts = np.cumsum((0, *self._own_rows[:-1]))
        [block] = self._memory[0].shards()
        if cache.row_levels is not None:  # of the rows of all processes
            firsts = (self._starts + self._own_first).tolist()
            parts = zip(firsts, self._own_rows.tolist(), strict=True)
            own_levels = np.concatenate([cache.row_levels[first : first + rows] for first, rows in parts])
            cache = replace(cache, row_levels=own_levels)
        self._tiers = RowTiers(int(self._own_rows.sum()), dim, cache, block.weight, block.adagrad_sum)
        self._group: Any = dist.new_group(backend="gloo")
        self._admitted: deque[_Admitted] = deque()
        self._in_work: _Admitted | None = None
        self._turn = threading.Condition()
        self._untrained, self._is_over = 0, False
        # Whether the messages of a batch are all sent, and whether no more are expected.
        self._is_between, self._has_ended = True, True

    @property
    def cache_counts(self) -> CacheCounts:
        """Counts of the row cache of this process since its start."""
        return self._tiers.counts

    def begin(self) -> None:
        """Start a sequence of batches; admitted batches that were not trained are dropped."""
        with self._turn, self._tiers.lock:
            self._admitted.clear()
            self._tiers.leave_window()
            self._untrained, self._is_over = 0, False
        self._is_between, self._has_ended = True, False

    def end(self) -> None:
        """End a sequence of batches: cancel the admission of a batch that waits for earlier batches to be trained."""
        with self._turn:
            self._is_over = True
            self._turn.notify_all()

    def leave(self) -> None:
        """Announce to the other processes that this process reads no more batches.

        Do nothing if a process has already announced it, or if messages of a batch are missing.
        """
        if self._is_between and not self._has_ended:
            self._agree_to_continue([0] * self._processes, is_over=True)

    @torch.no_grad()
    def admit(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Load the rows of a batch into the memory of their owners; may run in another thread than training.

        Args:
            values: Ids of this process's part, as for `forward`.
            offsets: Bounds of the bags, as for `forward`.

        Returns:
            Slots of the ids, counted over all processes, which `forward` takes in training mode.

        Raises:
            TooLargeError: The batch alone has more rows than the cache of a process.
            TrainingError: Another process has left the pass.
        """
        batch = self._numbered(values, offsets, counted=True)
        with self._turn:
            self._admitted.append(batch)
            self._untrained += 1
        return batch.slots

    def rows_of_batch(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the rows of this process's part of the batch that is trained next."""
        assert values is self._admitted[0].slots, "batches are trained in the order in which they were admitted"
        return torch.from_numpy(self._admitted[0].rows)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag, in all processes."""
        if not self.training:
            return self._score(values, offsets, weights)
        assert self._admitted, "in training mode a batch is admitted before it is looked up"
        assert values is self._admitted[0].slots, "batches are trained in the order in which they were admitted"
        with self._turn:
            self._in_work = self._admitted.popleft()
        self._tiers.mark_stale()
        return self._pooled(values, offsets, weights)

    def after_backward(self) -> None:
        """Mark the batch as trained, so that a waiting batch is admitted."""
        self._memory[0].after_backward()
        with self._turn:
            self._untrained -= 1
            self._turn.notify_all()

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate, also in the kernel of the rows in memory."""
        super().set_learning_rate(rate)
        self._memory[0].set_learning_rate(rate)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the initial weights that undivided tables would have; this process stores its own rows in its file."""
        self.forget_rows()
        self._tiers.start_anew()
        shards = {shard.table: shard for shard in self.initialised_shards()}

        def later(drawn: IndependentRows) -> None:
            own = shards.get(drawn.table)
            if own is not None:
                first = int(self._own_starts[drawn.table])
                self._tiers.add_start(drawn, first=first, rows=len(own.weight), first_row=own.first_row)

        for table, first_row, drawn in draw_tables(self.rows, self.dim, generator, self.initial_bound, later=later):
            if table in shards:
                copy_block(drawn, first_row, 0, shards[table])
                shards[table].adagrad_sum.zero_()
                self._tiers.count_touched(len(drawn))
        self._tiers.leave_pages()

    def shards(self) -> Iterator[Shard]:
        """Yield the blocks in the file of this process, after all rows are initialised and the cache is flushed."""
        self._tiers.begin_all()
        return self.initialised_shards()

    def initialised_shards(self) -> Iterator[Shard]:
        """Yield the blocks in the file of this process after a flush; rows never looked up stay uninitialised."""
        self._tiers.flush()
        self._tiers.leave_pages()
        own = self._own_rows.tolist()
        parts = zip(self._tiers.weight.split(own), self._tiers.adagrad_sum.split(own), strict=True)
        for table, (weight, sums) in enumerate(parts):
            if len(weight):
                first = int(self._own_first[table])
                yield Shard(
                    table=table,
                    first_row=first,
                    first_column=0,
                    weight=weight,
                    adagrad_sum=sums,
                    replicated=False,
                    starts=self._tiers.starts(int(self._own_starts[table]), len(weight)),
                )

    def forget_rows(self) -> None:
        """Empty the cache without writing its rows to the file."""
        with self._turn, self._tiers.lock:
            self._tiers.forget()
            self._tiers.leave_pages()
            self._admitted.clear()

    def _slot_table(self, device: torch.device, sharding: Sharding, *, is_weighted: bool) -> ShardedEmbeddings:
        """Return the memory of all processes as one table."""
        rows = self._slots * self._processes
        by_row = replace(sharding, given=(Choice("row_wise"),))
        plan = partial(make_plan, sharding=by_row, device=device, batch_size=1, ids_per_sample=())
        return ShardedEmbeddings(
            [TableShape(ids=rows, rows=rows, width=self.dim)],
            self.dim,
            learning_rate=self.learning_rate,
            device=device,
            make_plan=plan,
            precision=sharding.precision,
            shares_memory=sharding.shares_memory,
            is_weighted=is_weighted,
        )

    def _row_of_each(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the row of each id of the last `lookup`."""
        batch = self._in_work if self.training else None
        return super()._row_of_each(values, offsets) if batch is None else torch.from_numpy(batch.rows[batch.position])

    def _score(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Pool ids that were not prefetched; if their rows do not fit, split the batch in halves."""
        assert not self._untrained or self._is_over, "scores are requested outside of a pass"
        with self._tiers.lock:
            self._tiers.leave_window()
        self._untrained, self._is_over = 0, False
        bags = len(self.table_of)
        samples = (len(offsets) - 1) // bags
        try:
            batch = self._numbered(values, offsets, counted=False)
        except TooLargeError:
            if samples == 1:
                raise
            lengths, halves = offsets.diff().view(bags, -1), []
            for half in (slice(0, samples // 2), slice(samples // 2, samples)):
                is_in = torch.zeros_like(lengths, dtype=torch.bool)
                is_in[:, half] = True
                kept = is_in.flatten().repeat_interleave(lengths.flatten())
                bounds = torch.cat([offsets[:1], lengths[:, half].flatten().cumsum(0).to(offsets.dtype)])
                halves.append(self._score(values[kept], bounds, None if weights is None else weights[kept]))
            return torch.cat(halves)
        return self._pooled(batch.slots, offsets, weights)

    def _pooled(self, slots: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the sums of bags, `[batch, bags of a sample * dim]`.

        All bags are passed to the kernel as one field. For several fields of one table it would sum gradients in
        another order than for separate tables.
        """
        pooled = self._memory[0](slots, offsets, weights)
        return pooled.view(len(self.table_of), -1, self.dim).transpose(0, 1).flatten(1)

    def _numbered(self, values: Tensor, offsets: Tensor, *, counted: bool) -> _Admitted:
        """Load the rows of a batch (steps 1 to 4 of the module docstring), and return the batch with slot numbers."""
        import pandas as pd

        position, found = pd.factorize(EmbeddingTables._row_of_each(self, values, offsets).numpy())
        rows = np.asarray(found)
        table = np.searchsorted(self._starts, rows, side="right") - 1
        owner = self._blocks.owner(table, rows - self._starts[table])
        order = np.argsort(owner, kind="stable")
        asked = np.bincount(owner, minlength=self._processes).tolist()
        received = self._agree_to_continue(asked)
        self._is_between = False
        wanted = exchanged(torch.from_numpy(rows[order]), asked, received, self._group).numpy()
        table = np.searchsorted(self._starts, wanted, side="right") - 1
        in_file = wanted - self._starts[table] - self._own_first[table] + self._own_starts[table]
        slots = self._bring(in_file, len(position) if counted else None)
        answers = exchanged(torch.from_numpy(slots), received, asked, self._group).numpy()
        slot_of_row = np.empty(len(rows), dtype=np.int32)
        self._is_between = True
        slot_of_row[order] = answers + owner[order].astype(np.int32) * self._slots
        return _Admitted(torch.from_numpy(slot_of_row[position]), rows, position)

    def _bring(self, rows: np.ndarray, lookups: int | None) -> np.ndarray:
        """Load rows that processes requested, by their position in the file, into slots (steps 2 and 3).

        `lookups` are the ids in this process's part of the batch, for the cache statistics; None counts nothing.
        """
        distinct, place = np.unique(rows, return_inverse=True)
        slots = self._try(distinct, lookups)
        room = TOO_LARGE if len(distinct) > self._slots else WAITS if slots is None else HAS_ROOM
        least, most = self._over_all([room, -len(distinct)])
        if least == TOO_LARGE:
            self._is_between = True
            raise TooLargeError(
                f"The embedding cache of {self._slots:,} rows of a process cannot hold the {-most:,} rows of one "
                f"batch: raise --embedding-memory, or lower the batch size."
            )
        if least == WAITS:  # until all earlier batches have been trained on, in all processes
            with self._turn:
                self._turn.wait_for(lambda: self._is_over or not self._untrained)
                goes_on = not self._is_over
            if not self._over_all([int(goes_on)])[0]:
                self._is_between = True
                raise TrainingError(
                    "The training process ended while a batch was being prefetched: train again to resume."
                )
            if slots is None:
                with self._tiers.lock:
                    self._tiers.leave_window()
                slots = self._try(distinct, lookups)
        assert slots is not None, "a batch alone fits into the cache"
        return slots[place]

    def _try(self, rows: np.ndarray, lookups: int | None) -> np.ndarray | None:
        with self._tiers.lock:
            try:
                slots = self._tiers.bring(rows, counted=lookups is not None)
            except TooLargeError:
                return None
            self._tiers.counts.lookups += lookups or 0
            return slots

    def _agree_to_continue(self, asked: Sequence[int], *, is_over: bool = False) -> list[int]:
        """Exchange row counts (step 1); return the number of rows that each process requests from this one."""
        received = of_all(torch.tensor([int(is_over), *asked]), self._group)
        self._has_ended = any(int(one[0]) for one in received)
        if self._has_ended and not is_over:
            raise TrainingError(
                "Another process of the training run has stopped reading batches: train again to resume from "
                "the checkpoint."
            )
        return [int(one[1 + self._rank]) for one in received]

    def _over_all(self, numbers: list[int]) -> list[int]:
        """Return the smallest value of each number over all processes."""
        least = torch.tensor(numbers)
        dist.all_reduce(least, dist.ReduceOp.MIN, group=self._group)
        return [int(one) for one in least]

    def _apply(self, fn: Any, recurse: bool = True) -> nn.Module:
        return self  # it is built where it stays
