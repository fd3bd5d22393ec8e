"""Embedding tables divided over the processes of a group, with row-wise Adagrad.

Each process looks up the ids of its own samples. Most tables are TorchRec's
(`shunter.extensions.distributed.tables.torchrec_tables`): ids are sent to the owners of their rows and pooled rows come
back; gradients are sent in the other direction, and FBGEMM updates the rows. Other tables exchange single rows, except
frequent rows, which every process has (`shunter.extensions.distributed.tables.exchanged`).
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from shunter.extensions.distributed.tables.exchanged import ExchangedTable, RowExchange
from shunter.extensions.distributed.tables.sharding_types import CommunicationPrecision
from shunter.extensions.distributed.tables.torchrec_tables import ColumnOrder, MakePlan, SentIds, TorchRecTables
from shunter.models.embeddings.cache_counts import RowTraffic
from shunter.models.embeddings.initial_weights import ROWS_DRAWN_AT_ONCE, IndependentRows, draw_tables
from shunter.models.embeddings.mixed import MixedBags
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.shards import Shard, copy_block
from shunter.models.spec import TableShape

if TYPE_CHECKING:
    from torchrec.distributed.types import ShardingPlan


@dataclass(frozen=True, kw_only=True)
class TableGroup:
    """Group of embedding tables that are looked up together.

    Attributes:
        tables: Numbers of the tables in the model.
        bags: Bags of a sample that are looked up in these tables.
        table_of: Table of each of these bags, as an index into `tables`.
    """

    tables: tuple[int, ...]
    bags: tuple[int, ...]
    table_of: tuple[int, ...]

    @classmethod
    def of(cls, tables: Sequence[int], table_of: Sequence[int]) -> Self:
        """Create a group of some tables; `table_of` is the table of each bag of a sample, among all tables."""
        place = {table: number for number, table in enumerate(tables)}
        bags = tuple(bag for bag, table in enumerate(table_of) if table in place)
        return cls(tables=tuple(tables), bags=bags, table_of=tuple(place[table_of[bag]] for bag in bags))


@dataclass(frozen=True, kw_only=True)
class Division:
    """Division of a model's tables by how they are looked up; every table is in one group.

    Attributes:
        pooled: Tables whose pooled rows are sent between processes; None if there are none.
        exchanged: Tables whose single rows are sent between processes: for each width the tables and their group.
        widths: Width of the vector of each bag of a sample.
    """

    pooled: TableGroup | None
    exchanged: tuple[tuple[int, tuple[ExchangedTable, ...], TableGroup], ...]
    widths: tuple[int, ...]

    @classmethod
    def of(cls, shapes: Sequence[TableShape], table_of: Sequence[int], exchanged: Sequence[ExchangedTable]) -> Self:
        """Divide tables of these shapes into groups; those that are not in `exchanged` send pooled rows."""
        pooled = sorted(set(range(len(shapes))) - {one.number for one in exchanged})
        by_width: dict[int, list[ExchangedTable]] = {}
        for one in sorted(exchanged, key=lambda one: one.number):
            by_width.setdefault(shapes[one.number].width, []).append(one)
        return cls(
            pooled=TableGroup.of(pooled, table_of) if pooled else None,
            exchanged=tuple(
                (width, tuple(tables), TableGroup.of([one.number for one in tables], table_of))
                for width, tables in by_width.items()
            ),
            widths=tuple(shapes[table].width for table in table_of),
        )

    @property
    def groups(self) -> list[TableGroup]:
        """All table groups, in the order of their vectors in the output of a lookup."""
        return [*([self.pooled] if self.pooled else []), *(group for _, _, group in self.exchanged)]

    def order(self, where: torch.device) -> ColumnOrder | None:
        """Return the column order that sorts the output of all groups by bag; None if it is sorted already."""
        there = [bag for group in self.groups for bag in group.bags]
        starts = dict(zip(there, accumulate((self.widths[bag] for bag in there), initial=0), strict=False))
        return ColumnOrder.of([(starts[bag], width) for bag, width in enumerate(self.widths)], where)


class ShardedEmbeddings(EmbeddingTables):
    """Divided tables with the interface of undivided ones: TorchRec's tables, and tables with row exchange.

    Every process of the default group must build and call it at the same time, with batches of equal size. The gradient
    of the loss is averaged over the processes. The module has no `weight` and `adagrad_sum`; `shards` returns the
    blocks in this process.

    Args:
        shapes: Ids, rows and width of each table (`shunter.models.embeddings.mixed`).
        dim: Width of the output vectors.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device of this process.
        make_plan: Decides how TorchRec divides its tables; equal in every process.
        precision: Data type of pooled rows and gradients that are sent; exchanged single rows stay in fp32.
        shares_memory: Whether processes of one machine exchange pooled rows through memory (`shared_vectors`).
        table_of: See `EmbeddingTables`.
        is_weighted: Whether lookups have weights of ids.
        exchanged: Tables with row exchange.

    Attributes:
        plan: Division of TorchRec's tables; None if there are none.
    """

    def __init__(
        self,
        shapes: Sequence[TableShape],
        dim: int,
        *,
        learning_rate: float,
        device: torch.device,
        make_plan: MakePlan,
        precision: CommunicationPrecision = "fp32",
        shares_memory: bool = True,
        table_of: Sequence[int] | None = None,
        is_weighted: bool = False,
        exchanged: Sequence[ExchangedTable] = (),
    ) -> None:
        super().__init__([shape.rows for shape in shapes], dim, learning_rate, table_of)
        self._widths = [shape.width for shape in shapes]
        self._mixed = MixedBags(shapes, dim, self.table_of).to(device)
        division = Division.of(shapes, self.table_of, exchanged)
        # Kept out of the module tree: their parameters are not updated by the dense optimiser.
        self._parts: list[tuple[tuple[int, ...], TorchRecTables | RowExchange]] = []
        self.plan: ShardingPlan | None = None
        if pooled := division.pooled:
            part = TorchRecTables(
                [(one, self.rows[one], self._widths[one]) for one in pooled.tables],
                pooled.table_of,
                learning_rate=learning_rate,
                device=device,
                make_plan=make_plan,
                precision=precision,
                shares_memory=shares_memory,
                is_weighted=is_weighted,
            )
            self.plan = part.plan
            self._parts.append((pooled.bags, part))
        for width, tables, group in division.exchanged:
            part = RowExchange(tables, width, group.table_of, learning_rate, device)
            self._parts.append((group.bags, part))
        self._in_order = division.order(device)
        # The next batch to look up, and the one after it.
        self._ahead: deque[tuple[Tensor, dict[int, SentIds]]] = deque(maxlen=2)
        self._sent: dict[int, SentIds] = {}

    @property
    def row_traffic(self) -> RowTraffic | None:
        """Statistics of the tables with row exchange; None if there are none."""
        found = [part.traffic for _, part in self._parts if isinstance(part, RowExchange)]
        if not found:
            return None
        totals = {name: sum(getattr(one, name) for one in found) for name in ("rows", "sent_bytes")}
        return RowTraffic(steps=found[0].steps, lookups=found[0].lookups, **totals)

    def rows_of_batch(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the rows that this process's part of a batch looks up, in any process; several ids may share a row."""
        return super().rows_of_batch(self._mixed.rows_of(values, offsets), offsets)

    def send_ahead(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> None:
        """Start to send the ids of a batch to the processes that own their rows, before the lookup of the batch.

        Only ids of TorchRec's tables are sent early. Rows can still change before the lookup, so they are sent then.
        `forward` recognises the batch by `values`, which must be the same tensor object.
        """
        rows = self._mixed.rows_of(values, offsets)
        sent = {
            place: part.start_sending(*self._of(bags, rows, offsets, weights))
            for place, (bags, part) in enumerate(self._parts)
            if isinstance(part, TorchRecTables)
        }
        self._ahead.append((values, sent))

    def continue_sending(self) -> None:
        """Send the ids of prefetched batches, after their counts have reached the owners."""
        for _, sent in self._ahead:
            for ids in sent.values():
                ids.send_ids()

    def forward(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up this process's part of a batch; see `EmbeddingTables.forward`."""
        self._sent = {}
        is_ahead = any(there is values for there, _ in self._ahead)
        while is_ahead:  # skip prefetched batches that were never looked up
            there, self._sent = self._ahead.popleft()
            is_ahead = there is not values
        return super().forward(self._mixed.rows_of(values, offsets), offsets, weights)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag, from all processes."""
        pooled = []
        for place, (bags, part) in enumerate(self._parts):
            if isinstance(part, TorchRecTables) and place in self._sent:
                pooled.append(part.lookup_sent(self._sent.pop(place)))
            else:
                pooled.append(part.lookup(*self._of(bags, values, offsets, weights)))
        vectors = pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=1)
        return self._mixed.filled_up(vectors if self._in_order is None else self._in_order.applied(vectors))

    def _of(
        self, bags: Sequence[int], values: Tensor, offsets: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the ids, bounds and weights of the bags of one table group."""
        if len(self._parts) == 1:
            return values, offsets, weights
        batch = (len(offsets) - 1) // len(self.table_of)
        starts = offsets[::batch].tolist()
        own = [slice(starts[bag], starts[bag + 1]) for bag in bags]
        lengths = offsets.diff().view(-1, batch)[list(bags)].flatten()
        bounds = torch.cat([offsets.new_zeros(1), lengths.cumsum(0, dtype=offsets.dtype)])
        picked = torch.cat([values[one] for one in own])
        return picked, bounds, None if weights is None else torch.cat([weights[one] for one in own])

    def after_backward(self) -> None:
        """Finish updates that the backward pass did not do: of replicated tables and of tables with row exchange."""
        for _, part in self._parts:
            part.after_backward()

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate, also for TorchRec's tables and for tables with row exchange."""
        super().set_learning_rate(rate)
        for _, part in self._parts:
            part.set_learning_rate(rate)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the initial weights that undivided tables would have; of large tables, only the rows of this process."""
        shards = list(self.shards())

        def draw_own(table: IndependentRows) -> None:
            for shard in (one for one in shards if one.table == table.table):
                end = shard.first_row + len(shard.weight)
                for first in range(shard.first_row, end, ROWS_DRAWN_AT_ONCE):
                    drawn = table.draw(np.arange(first, min(first + ROWS_DRAWN_AT_ONCE, end)))
                    copy_block(torch.from_numpy(drawn), first, 0, shard)

        drawn_tables = draw_tables(self.rows, self._widths, generator, self.initial_bound, later=draw_own)
        for table, first_row, drawn in drawn_tables:
            for shard in shards:
                if shard.table == table:
                    copy_block(drawn, first_row, 0, shard)
        for shard in shards:
            shard.adagrad_sum.zero_()

    def shards(self) -> Iterator[Shard]:
        """Yield the table shards of this process."""
        for _, part in self._parts:
            yield from part.shards()

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
        return self  # it cannot be moved
