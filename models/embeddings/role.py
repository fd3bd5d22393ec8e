"""Base class of all kinds of embedding tables: the interface used by training, checkpoints, counting and serving.

A new kind is a module with a subclass, and an entry in `shunter.models.embeddings.kinds` if a model can choose it.
`tests/models/embeddings/test_contract.py` tests all kinds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from shunter.models.constant import Constant
from shunter.models.embeddings.cache_counts import CacheCounts, RowTraffic
from shunter.models.embeddings.initial_weights import draw_tables
from shunter.models.embeddings.shards import Shard
from shunter.models.spec import TableShape

EPSILON = 1e-8
FLOAT_BYTES = 4
REPEATED_ROWS = 1 << 12
COUNTED_ROWS = 1 << 23  # largest number of rows with a count each in memory (32 MiB); beyond it, rows are sorted


@dataclass(frozen=True, kw_only=True)
class TableBytes:
    """Memory use of embedding tables.

    Attributes:
        weights: Bytes of the rows.
        optimizer: Bytes of the rows' optimiser state.
    """

    weights: int
    optimizer: int


class EmbeddingTables(nn.Module, ABC):
    """Embedding tables whose rows are summed over each bag of ids.

    Optimisers get no gradient of the tables: the backward pass itself updates the touched rows by exact row-wise
    Adagrad, `sum += mean(gradient^2); row -= learning_rate * gradient / (sqrt(sum) + epsilon)`. The gradient of a row
    is first summed over its occurrences in the batch. Therefore the module has buffers and no parameters.

    A table may serve several fields, and a field that is looked up id by id has a bag for each position. Every sample
    has the same bags, and the bags of one table are next to each other.

    Methods in the order of their calls:

        build        the kind's constructor (`shunter.models.embeddings.kinds`; divided tables:
        `shunter.extensions.distributed.training`)
        initialise   once, by `shunter.models.registry.assemble_model`; a checkpoint may overwrite the drawn weights
        load         `load_state_dict` and `load_optimizer_tensors`, or `initialised_shards` and `forget_rows`, by
                     `shunter.engine.checkpoint`
        begin        before each pass over training batches, in the thread that reads them; `end` when training leaves
                     the pass, in the training thread, then `leave` in the thread that reads
        admit        once for each batch of the pass, in the same thread, some batches ahead of training
        forward      once for each admitted batch in the same order, in the training thread; then the loss's backward
                     pass, which updates the rows, outside of every compiled graph
        set_learning_rate    before a step whose rate differs from that of the previous step
        set_step             before each step of a training run
        after_backward   right after each backward pass, before the optimiser of the layers steps
        forward in evaluation mode    at any time between two steps, with ids that were not admitted
        save         `state_dict` and `optimizer_tensors`, or `initialised_shards`, between two steps
        draw_again   before the best weights are loaded, if they leave out rows that still had their initial weights

    A kind whose tables are fully in this process sets `weight` and `adagrad_sum`, and inherits everything except
    `lookup`. A kind that divides tables overrides `initialise` and `shards`. A kind with other optimiser state
    overrides `optimizer_tensors`, `load_optimizer_tensors` and `count_bytes`.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        learning_rate: Step size of the row-wise Adagrad.
        table_of: Table of each bag of a sample, ascending; None is one bag for each table.

    Attributes:
        weight: Tables, concatenated by rows, `[rows of all tables, dim]` float32 or float16; only if they are fully in
            this process.
        adagrad_sum: Optimiser state, `[rows of all tables]` float32; present if `weight` is, but not in the state dict.
        is_frozen: Whether backward passes leave the tables unchanged.
        l2: Weight decay. A row that a step touches has `l2 * row` added to its gradient once, however often it is in
            the batch, so that rare ids decay most. For a bag of several ids the sum decays: `l2 * sum / occurrences`,
            with `1 / occurrences` averaged over its ids. The decay is added to the gradient of the lookup, because
            FBGEMM's optimisers have no weight decay on CPUs. Each process adds it for its own samples.
        decays_rows: Whether the kernel can add the decay `l2 * row` during the update, in batches with one id per bag.
        row_l2: Part of `l2` that the kernel adds during the update of the current batch.
        frozen_tables: Tables that are not trained.
        initial_bound: Bound of the initial weights, drawn between minus and plus it. None gives each table its own
            bound, 1 / sqrt(rows), so that fields with few ids have the largest initial weights.
        is_in_memory: Whether the rows are in memory, so that a copy of them may fit too.
        can_be_recorded: Whether a step on a GPU needs nothing from the host, so that a CUDA graph can record it.
    """

    weight: Tensor
    adagrad_sum: Tensor
    is_frozen: bool = False
    is_in_memory: bool = True
    can_be_recorded: bool = False
    decays_rows: bool = False
    row_l2: float = 0.0
    frozen_tables: Collection[int] = ()
    _learning_bags: Constant | None = None
    _drawn_from: Tensor
    _times_of_row: Tensor | None = None
    l2: float = 0.0
    initial_bound: float | None = None

    def __init__(
        self, rows: Sequence[int], dim: int, learning_rate: float, table_of: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.rows = tuple(rows)
        self.dim = dim
        self.learning_rate = learning_rate
        self.table_of = tuple(range(len(rows)) if table_of is None else table_of)
        assert sorted(set(self.table_of)) == list(range(len(rows))), "every table has a bag"
        assert list(self.table_of) == sorted(self.table_of), "the bags of a table are next to each other"
        first_rows = [0, *accumulate(self.rows)]
        self._first_row_of_bag = Constant([first_rows[table] for table in self.table_of])

    @property
    def placement(self) -> str | None:
        """Sentence on the location of tables that are not fully in memory; None if all are in memory."""
        return None

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Weights of each table, `[rows, width of the table]`, as views of `weight`."""
        return self.weight.split(self.rows)

    @abstractmethod
    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag, and update them in the backward pass; see `forward`."""

    def forward(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up the pooled embedding vectors of one batch.

        Args:
            values: Ids, ordered by bag and then by sample (the order of a KeyedJaggedTensor); in training mode the
                return value of `admit`.
            offsets: `[bags of a sample * batch + 1]`, start of each bag in `values`, and the end.
            weights: Factor of the row of each id in the sum, float32 `[ids]`; None is 1.

        Returns:
            Pooled rows, `[batch, bags of a sample, dim]`; zeros for an empty bag.
        """
        self.row_l2 = self.l2 if self.decays_rows and self.l2 and have_one_id(values, offsets) else 0.0
        pooled = self.lookup(values, offsets, weights).view(-1, len(self.table_of), self.dim)
        if self.is_frozen:
            return pooled.detach()
        if self.l2 and not self.row_l2 and pooled.requires_grad:
            decay = pooled.detach() * (self.l2 * self._rarity(values, offsets))
            pooled.register_hook(lambda gradient: gradient + decay)
        if self._learning_bags is not None and pooled.requires_grad:
            learns = self._learning_bags.on(pooled.device)
            pooled.register_hook(
                lambda gradient: gradient * learns.unsqueeze(1)
            )  # without a gradient, the update does not change a row
        return pooled

    def freeze_tables(self, tables: Collection[int]) -> None:
        """Exclude tables from training; called before training."""
        learns = [int(table not in tables) for table in self.table_of]
        self.frozen_tables = tuple(tables)
        self._learning_bags = Constant(learns) if tables else None

    def rows_of_batch(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the rows that a batch looks up, numbered through all concatenated tables; rows may repeat.

        Args:
            values: Ids, as for `forward`; for a training batch the return value of `admit`.
            offsets: Bounds of the bags, as for `forward`.
        """
        return self._row_of_each(values, offsets)

    def _row_of_each(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the row of each id of `lookup`, numbered through all tables."""
        starts = self._first_row_of_bag.on(values.device)
        ids_of_bag = offsets[:: (len(offsets) - 1) // len(self.table_of)].diff()
        return values.long() + starts.repeat_interleave(ids_of_bag, output_size=len(values))

    @property
    def cache_counts(self) -> CacheCounts | None:
        """Statistics of a cache in front of a file; None if all rows are in memory."""
        return None

    @property
    def row_traffic(self) -> RowTraffic | None:
        """Statistics of the row exchange between processes; None if there is no exchange."""
        return None

    def begin(self) -> None:
        """Start a pass over training batches; admitted but untrained batches are dropped. Most kinds do nothing."""

    def end(self) -> None:
        """Cancel an admission that waits for training, since training has ended. Most kinds never wait."""

    def leave(self) -> None:
        """End a pass in the thread that admitted its batches. Most kinds do nothing."""

    def admit(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Prepare the rows of a batch for training; may run in another thread than training.

        Args:
            values: Ids, as for `forward`.
            offsets: Bounds of the bags, as for `forward`.

        Returns:
            Values that `forward` gets in training mode instead of the ids; the ids themselves if all rows are in
            memory.

        Raises:
            RequestError: There is not enough memory for the rows of the batch.
        """
        return values

    def after_backward(self) -> None:
        """Finish the update that a backward pass began. Most kinds have nothing left to do."""

    def set_learning_rate(self, rate: float) -> None:
        """Set the step size of later updates; called between two steps."""
        self.learning_rate = rate

    def set_step(self, step: int) -> None:
        """Set the number of the next step, counted from the first step of the training. Most kinds ignore it."""

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights of each table (`draw_tables`), and set the optimiser state to zero."""
        self._drawn_from = generator.get_state()
        tables = self.tables
        widths = [table.shape[1] for table in tables]
        for table, first_row, drawn in draw_tables(self.rows, widths, generator, self.initial_bound):
            tables[table][first_row : first_row + len(drawn)].copy_(drawn)
        self.adagrad_sum.zero_()

    @torch.no_grad()
    def await_weights(self) -> None:
        """Set the optimiser state to zero without drawing weights, since trained weights are loaded next."""
        self.adagrad_sum.zero_()

    @torch.no_grad()
    def repeat_few_rows(self, generator: torch.Generator) -> None:
        """Fill each table with repetitions of a few drawn rows, which is fast; for measurements of steps only."""
        for table in self.tables:
            limit = len(table) ** -0.5
            few = torch.empty(min(len(table), REPEATED_ROWS), table.shape[1]).uniform_(
                -limit, limit, generator=generator
            )
            for first_row in range(0, len(table), REPEATED_ROWS):
                part = table[first_row : first_row + REPEATED_ROWS]
                part.copy_(few[: len(part)])
        self.adagrad_sum.zero_()

    def draw_again(self) -> None:
        """Reset all rows that are drawn by hashes to their initial weights; other rows may be reset too."""
        generator = torch.Generator()
        generator.set_state(self._drawn_from)
        self.initialise(generator)

    def forget_rows(self) -> None:
        """Drop cached copies of rows, since other code has written the rows. Most kinds have none."""

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Return the optimiser state by name; it is not in the state dict, so a checkpoint stores it separately."""
        return {"adagrad_sum": self.adagrad_sum}

    @torch.no_grad()
    def load_optimizer_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the return value of `optimizer_tensors` back in place; call this after `load_state_dict`."""
        for name, tensor in self.optimizer_tensors().items():
            tensor.copy_(tensors[name])

    def shards(self) -> Iterator[Shard]:
        """Yield the table shards of this process with their optimiser state, as views of the live memory.

        All rows are included; see `initialised_shards`.
        """
        for table, (weight, sums) in enumerate(zip(self.tables, self.adagrad_sum.split(self.rows), strict=True)):
            yield Shard(table=table, first_row=0, first_column=0, weight=weight, adagrad_sum=sums, replicated=True)

    def initialised_shards(self) -> Iterator[Shard]:
        """Yield the table shards of this process; rows before their first lookup may be missing, see `Shard.starts`."""
        return self.shards()

    def held_bytes(self) -> TableBytes:
        """Return the memory of the rows in this process."""
        shards = list(self.initialised_shards())
        return TableBytes(
            weights=sum(shard.weight.nbytes for shard in shards),
            optimizer=sum(shard.adagrad_sum.nbytes for shard in shards),
        )

    @classmethod
    def count_bytes(cls, shapes: Sequence[TableShape]) -> TableBytes:
        """Return the memory of whole tables of these shapes, without building them."""
        return TableBytes(
            weights=sum(shape.rows * shape.width * shape.number_bytes for shape in shapes),
            optimizer=sum(shape.rows for shape in shapes) * FLOAT_BYTES,
        )

    def _rarity(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return 1 / occurrences of each id in the batch, averaged over each bag: `[batch, bags of a sample, 1]`."""
        lengths = offsets.diff()
        bag = torch.repeat_interleave(lengths, output_size=len(values))
        each = self._occurrences(self._row_of_each(values, offsets)).reciprocal()
        rarity = torch.zeros(len(lengths), device=values.device).index_add_(0, bag, each)
        return (rarity / lengths.clamp(min=1)).view(len(self.table_of), -1).t().unsqueeze(2)

    def _occurrences(self, rows: Tensor) -> Tensor:
        """Return how often the row of each id occurs in the batch, float32 `[ids]`.

        On a processor each row has a counter, if memory allows. On a GPU the rows are sorted, as in the update of the
        torch kernel. No shape then depends on the ids, and the GPU does not wait for the host.
        """
        if rows.device.type == "cpu" and sum(self.rows) <= COUNTED_ROWS:
            if self._times_of_row is None:
                self._times_of_row = torch.zeros(sum(self.rows), dtype=torch.int32)
            self._times_of_row.index_add_(0, rows, torch.ones(len(rows), dtype=torch.int32))
            counted = self._times_of_row.index_select(0, rows).float()
            self._times_of_row.index_fill_(0, rows, 0)
            return counted
        ordered, order = rows.sort()
        slot = torch.zeros_like(order)
        slot[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
        ones = torch.ones(len(rows), device=rows.device)
        counted = torch.zeros_like(ones).index_add_(0, slot, ones)
        return torch.empty_like(ones).index_copy_(0, order, counted[slot])

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> nn.Module:
        """Raise if the tables would be moved, because the kernel's memory is fixed when it is built."""
        before = self.weight
        super()._apply(fn, recurse)
        if self.weight.device != before.device or self.weight.dtype != before.dtype:
            raise RuntimeError("embedding tables cannot be moved or cast: build the model on its device instead")
        return self


def have_one_id(values: Tensor, offsets: Tensor) -> bool:
    """Return True if every bag of a batch has exactly one id."""
    return len(values) == len(offsets) - 1 and bool((offsets.diff() == 1).all())
