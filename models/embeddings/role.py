"""What every kind of embedding tables can do: the role that training, checkpoints, counting and serving rely on.

A new kind is a file with a class of this role, and a line in `shunter.models.embeddings.kinds` where a model chooses
it. `tests/models/embeddings/test_contract.py` runs over all kinds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from shunter.models.constant import Constant
from shunter.models.embeddings.cache_counts import CacheCounts
from shunter.models.embeddings.initial_weights import draw_tables
from shunter.models.embeddings.row_traffic import RowTraffic
from shunter.models.embeddings.shards import Shard
from shunter.models.spec import TableShape

EPSILON = 1e-8
FLOAT_BYTES = 4
REPEATED_ROWS = 1 << 12
COUNTED_ROWS = 1 << 23  # of which each has a count in memory, 32 MiB at most; a batch of more rows is sorted


@dataclass(frozen=True, kw_only=True)
class TableBytes:
    """Memory of some tables.

    Attributes:
        weights: Bytes of the rows.
        optimizer: Bytes of what the optimiser keeps of them.
    """

    weights: int
    optimizer: int


class EmbeddingTables(nn.Module, ABC):
    """Embedding tables whose rows are summed over each bag of ids.

    The gradient never reaches an optimiser: the backward pass updates the touched rows itself, by exact row-wise
    Adagrad, `sum += mean(gradient^2); row -= learning_rate * gradient / (sqrt(sum) + epsilon)`, where the gradient of
    a row is summed over its occurrences in the batch first. That is why the module has buffers and no parameters.

    A table may serve several fields, and a field that is looked up id by id has a bag for each position. A sample has
    the same bags as every other, those of one table next to each other.

    Who calls what, in the order of time:

        build        the kind's constructor (`shunter.models.embeddings.kinds`; divided tables:
        `shunter.engine.parallel`)
        initialise   once, by `shunter.models.registry.assemble_model`; a checkpoint may overwrite what it drew
        load         `load_state_dict` and `load_optimizer_tensors`, or `begun_shards` and `forget_rows`, by
                     `shunter.engine.checkpoint`
        begin        before each pass over training batches, in the thread that reads them; `end` when training leaves
                     the pass, in the training thread, then `leave` in the thread that reads
        admit        once for each batch of the pass, in the same thread, some batches ahead of training
        forward      once for each admitted batch in the same order, in the training thread; then the loss's backward
                     pass, which updates the rows, outside of every compiled graph
        set_learning_rate    before a step whose rate differs from that of the one before
        set_step             before each step of a training
        after_backward   right after each backward pass, before the optimiser of the layers steps
        forward in evaluation mode    at any time between two steps, with ids that nobody admitted
        save         `state_dict` and `optimizer_tensors`, or `begun_shards`, between two steps
        draw_again   before the best weights are loaded, where they leave out rows that were as `initialise` drew them

    A kind whose tables lie whole in this process sets `weight` and `adagrad_sum`, and inherits all but `lookup`. One
    that divides them overrides `initialise` and `shards`; one that keeps other state of the optimiser,
    `optimizer_tensors`, `load_optimizer_tensors` and `count_bytes`.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        learning_rate: Step size of the row-wise Adagrad.
        table_of: Table of each bag of a sample, ascending; None is one bag for each table.

    Attributes:
        weight: `[rows of all tables, dim]` float32 or float16, the tables one below the other; only where they lie
            whole here.
        adagrad_sum: `[rows of all tables]` float32, the optimiser's state, likewise; not part of the state dict.
        is_frozen: Whether a backward pass leaves the tables as they are.
        l2: Weight decay. A row that a step touches has `l2 * row` added to its gradient, however often the batch holds
            it, so that rare ids are held back most. Of a bag of several ids the sum decays, `l2 * sum / occurrences`
            with those of its ids averaged. It comes by the gradient of the lookup, for FBGEMM's optimisers have no
            weight decay on CPUs; where tables are divided, each process adds it for its own samples.
        decays_rows: Whether the update of these tables can add `l2 * row` itself, in batches of one id a bag.
        row_l2: What the update of this batch has to add by itself of `l2`.
        frozen_tables: Tables that learn nothing.
        initial_bound: Bound of the initial weights, which lie in plus and minus it; None gives each table its own,
            1 / sqrt(rows), by which the fields of few ids weigh most at first.
        is_in_memory: Whether the rows lie in memory, where a copy of them may lie too.
        can_be_recorded: Whether a step on a GPU asks nothing of the host, so that a CUDA graph can hold it.
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
        assert list(self.table_of) == sorted(self.table_of), "the bags of a table lie next to each other"
        first_rows = [0, *accumulate(self.rows)]
        self._first_row_of_bag = Constant([first_rows[table] for table in self.table_of])

    @property
    def placement(self) -> str | None:
        """Sentence on the location of tables that are not whole in memory; None of all others."""
        return None

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """The weights of each table, `[rows, its width]`: views of `weight`."""
        return self.weight.split(self.rows)

    @abstractmethod
    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag, and update them in the backward pass; see `forward`."""

    def forward(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up one batch.

        Args:
            values: Ids, bag by bag of a sample, and sample by sample for each (the order of a KeyedJaggedTensor); in
                training mode what `admit` returned.
            offsets: `[bags of a sample * batch + 1]`, where each bag starts in `values`, and the end.
            weights: float32 `[ids]`, what the row of each id is multiplied by before they are summed; None is 1.

        Returns:
            `[batch, bags of a sample, dim]`; zeros for an empty bag.
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
            )  # a row without a gradient is updated by nothing
        return pooled

    def freeze_tables(self, tables: Collection[int]) -> None:
        """Let these tables learn nothing; called before training."""
        learns = [int(table not in tables) for table in self.table_of]
        self.frozen_tables = tuple(tables)
        self._learning_bags = Constant(learns) if tables else None

    def rows_of_batch(self, values: Tensor, offsets: Tensor) -> Tensor:
        """The rows that a batch looks up, numbered through all tables one below the other; they may repeat.

        Args:
            values: Ids, as for `forward`; of a batch to be trained, what `admit` returned.
            offsets: Bounds of the bags, as for `forward`.
        """
        return self._row_of_each(values, offsets)

    def _row_of_each(self, values: Tensor, offsets: Tensor) -> Tensor:
        """The row of each id that `lookup` was given, numbered through all tables."""
        starts = self._first_row_of_bag.on(values.device)
        ids_of_bag = offsets[:: (len(offsets) - 1) // len(self.table_of)].diff()
        return values.long() + starts.repeat_interleave(ids_of_bag, output_size=len(values))

    @property
    def cache_counts(self) -> CacheCounts | None:
        """What a cache in front of a file did so far; None where all rows lie in memory."""
        return None

    @property
    def row_traffic(self) -> RowTraffic | None:
        """What rows that travel one by one have cost so far; None where none do."""
        return None

    def begin(self) -> None:
        """Start a pass over training batches: those admitted and not trained are dropped. Most kinds need nothing."""

    def end(self) -> None:
        """Let an admission that waits for training give up: no batch is trained any more. Most kinds never wait."""

    def leave(self) -> None:
        """End a pass in the thread that admitted its batches. Most kinds need nothing."""

    def admit(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Make the rows of a batch ready for training; may run in another thread than training.

        Args:
            values: Ids, as for `forward`.
            offsets: Bounds of the bags, as for `forward`.

        Returns:
            What `forward` takes in training mode instead of the ids; the ids themselves where all rows are ready.

        Raises:
            RequestError: The rows of the batch do not fit.
        """
        return values

    def after_backward(self) -> None:
        """Finish the update that a backward pass began. Most kinds have finished it there."""

    def set_learning_rate(self, rate: float) -> None:
        """Let all updates from now on have another step size; called between two steps."""
        self.learning_rate = rate

    def set_step(self, step: int) -> None:
        """Let the next step have this number, counted from the first of the training. Most kinds need none."""

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights of each table (`draw_tables`), and set the optimiser's state to zero."""
        self._drawn_from = generator.get_state()
        tables = self.tables
        widths = [table.shape[1] for table in tables]
        for table, first_row, drawn in draw_tables(self.rows, widths, generator, self.initial_bound):
            tables[table][first_row : first_row + len(drawn)].copy_(drawn)
        self.adagrad_sum.zero_()

    @torch.no_grad()
    def await_weights(self) -> None:
        """Draw nothing, for learned weights are loaded next; the optimiser's state is set to zero."""
        self.adagrad_sum.zero_()

    @torch.no_grad()
    def repeat_few_rows(self, generator: torch.Generator) -> None:
        """Fill each table with a few drawn rows, again and again: for who measures steps and learns nothing."""
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
        """Let all rows that can be drawn by themselves be as `initialise` drew them; others may be so too."""
        generator = torch.Generator()
        generator.set_state(self._drawn_from)
        self.initialise(generator)

    def forget_rows(self) -> None:
        """Others have written rows: what is kept of them elsewhere counts no more. Most kinds keep nothing."""

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """State of the optimiser by name, which the state dict does not hold: what a checkpoint keeps besides."""
        return {"adagrad_sum": self.adagrad_sum}

    @torch.no_grad()
    def load_optimizer_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy what `optimizer_tensors` gave back, in place; after `load_state_dict`."""
        for name, tensor in self.optimizer_tensors().items():
            tensor.copy_(tensors[name])

    def shards(self) -> Iterator[Shard]:
        """The blocks of tables that lie in this process, with the optimiser's state of their rows: live memory.

        All rows are there; see `begun_shards`.
        """
        for table, (weight, sums) in enumerate(zip(self.tables, self.adagrad_sum.split(self.rows), strict=True)):
            yield Shard(table=table, first_row=0, first_column=0, weight=weight, adagrad_sum=sums, replicated=True)

    def begun_shards(self) -> Iterator[Shard]:
        """The same, where rows that nobody has asked for yet may still be missing: `Shard.starts`."""
        return self.shards()

    def held_bytes(self) -> TableBytes:
        """Memory of the rows that lie in this process."""
        shards = list(self.begun_shards())
        return TableBytes(
            weights=sum(shard.weight.nbytes for shard in shards),
            optimizer=sum(shard.adagrad_sum.nbytes for shard in shards),
        )

    @classmethod
    def count_bytes(cls, shapes: Sequence[TableShape]) -> TableBytes:
        """Memory of whole tables of some shapes, without building them."""
        return TableBytes(
            weights=sum(shape.rows * shape.width * shape.number_bytes for shape in shapes),
            optimizer=sum(shape.rows for shape in shapes) * FLOAT_BYTES,
        )

    def _rarity(self, values: Tensor, offsets: Tensor) -> Tensor:
        """One over the occurrences in the batch of each id, averaged over a bag: `[batch, bags of a sample, 1]`."""
        lengths = offsets.diff()
        bag = torch.repeat_interleave(lengths, output_size=len(values))
        each = self._occurrences(self._row_of_each(values, offsets)).reciprocal()
        rarity = torch.zeros(len(lengths), device=values.device).index_add_(0, bag, each)
        return (rarity / lengths.clamp(min=1)).view(len(self.table_of), -1).t().unsqueeze(2)

    def _occurrences(self, rows: Tensor) -> Tensor:
        """How often the row of each id is among those of the batch, float32 `[ids]`.

        On a processor each row counts its ids, where memory holds as many counts. On a GPU the rows are sorted: like
        the update of the torch kernel that has no shape that depends on the ids, and does not wait for the host.
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
        """Refuse to move: the kernel works on the memory it was built with."""
        before = self.weight
        super()._apply(fn, recurse)
        if self.weight.device != before.device or self.weight.dtype != before.dtype:
            raise RuntimeError("embedding tables cannot be moved or cast: build the model on its device instead")
        return self


def have_one_id(values: Tensor, offsets: Tensor) -> bool:
    """Return whether every bag of a batch holds one id."""
    return len(values) == len(offsets) - 1 and bool((offsets.diff() == 1).all())
