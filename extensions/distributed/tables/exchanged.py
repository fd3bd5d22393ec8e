"""Distributed embedding tables with row exchange: frequent rows are in every process, each other row is in one process.

The method is that of OPER (ATC 2024). The rows with most lookups are read and trained in the process of the sample. For
every other row a process sends a request to the owner of the row, once per batch even if many samples use the row.
TorchRec exchanges a pooled vector for every bag instead. Single-row exchange sends fewer bytes if a few rows get most
of the lookups. The owner of a row is computed from the block of the row, without a map of rows.

A step has two exchanges. In the forward pass ids are sent to the owners and rows come back; each process sums its own
bags. After the backward pass gradients are sent in the same way, and each owner sums the gradients of a row in the
order of the processes. The gradients of the frequent rows are gathered by all processes, which sum them in the same
order, so that the copies stay equal to the last bit. All rows are updated by exact row-wise Adagrad with the gradient
averaged over the processes, as in `shunter.extensions.distributed.tables.sharded`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.functional import embedding_bag

from shunter.models.constant import Constant
from shunter.models.embeddings.cache_counts import RowTraffic
from shunter.models.embeddings.role import EPSILON
from shunter.models.embeddings.shards import Shard

MARKED_ROWS_A_LOOKUP = 16


@dataclass(frozen=True, kw_only=True)
class ExchangedTable:
    """Table with the owners of its rows.

    Attributes:
        number: Number of the table in the model.
        replicated_rows: Number of first rows that are copied to every process.
        owners: Processes that own the other rows, in blocks of equal size and in this order.
    """

    number: int
    rows: int
    replicated_rows: int
    owners: tuple[int, ...]

    @property
    def block(self) -> int:
        """Rows of a block; the last block may be shorter."""
        return -(-(self.rows - self.replicated_rows) // len(self.owners))

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """Yield owner, first row and number of rows of each block."""
        for place, owner in enumerate(self.owners):
            first = min(self.rows, self.replicated_rows + place * self.block)
            yield owner, first, min(self.rows, first + self.block) - first


@dataclass(frozen=True)
class _FetchedRows:
    """Rows that a lookup has fetched, stored until they are updated.

    Attributes:
        rows: `[distinct rows, width]`, the frequent rows first, then owner by owner; gradients accumulate here.
        frequent: Positions of the looked-up frequent rows in the copies.
        counts: `[processes][1 + processes]`, distinct rows that each process looked up: frequent, and of each owner.
        own: Positions of the rows of this process that its own samples looked up.
        served: Positions of the rows of this process that other processes requested, process by process.
    """

    rows: Tensor
    frequent: Tensor
    counts: list[list[int]]
    own: Tensor
    served: Tensor


class RowExchange:
    """Tables of one width with row exchange; every process must call each method at the same time.

    Args:
        table_of: Table of each bag of a sample, as an index into `tables`.
        learning_rate: Step size of the row-wise Adagrad.

    Attributes:
        traffic: Statistics of requested rows and sent bytes of this process.
    """

    def __init__(
        self,
        tables: Sequence[ExchangedTable],
        width: int,
        table_of: Sequence[int],
        learning_rate: float,
        device: torch.device,
    ) -> None:
        self.tables, self.width, self.learning_rate = tuple(tables), width, learning_rate
        self.widths = [width] * len(table_of)
        self._bags = len(table_of)
        self._rank, self._count = dist.get_rank(), dist.get_world_size()
        self._copies = _Memory.of(sum(table.replicated_rows for table in tables), width, device)
        held = [0] * self._count
        for table in tables:
            for owner, _, rows in table.blocks():
                held[owner] += rows
        self._own = _Memory.of(held[self._rank], width, device)
        # Global row numbers: the copies first, then the rows of one owner after the other.
        self._bounds = [0, *accumulate([len(self._copies.sums), *held])]
        assert max(len(self._copies.sums), *held) < 2**31, "row positions are sent as int32"
        self._edges = Constant(self._bounds)
        pieces = 1 + max(len(table.owners) for table in tables)
        self._replicated = Constant([tables[one].replicated_rows for one in table_of])
        self._blocks = Constant([tables[one].block for one in table_of])
        shifts = self._shifts(pieces)
        self._shift = Constant([shifts[one][piece] for one in table_of for piece in range(pieces)])
        self._first_piece = Constant([bag * pieces for bag in range(self._bags)])
        self._asked: _FetchedRows | None = None
        self.traffic = RowTraffic()

    def _shifts(self, pieces: int) -> list[list[int]]:
        """Return what to add to a table's row numbers to get global ones: for replicated rows, then for each block."""
        copied, used = 0, [0] * self._count
        found = []
        for table in self.tables:
            shifts = [copied] + [0] * (pieces - 1)
            copied += table.replicated_rows
            for place, (owner, first, rows) in enumerate(table.blocks()):
                shifts[1 + place] = self._bounds[1 + owner] + used[owner] - first
                used[owner] += rows
            found.append(shifts)
        return found

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag of this process's samples, from all processes.

        Args:
            values: Rows, ordered by bag and then by sample.
            offsets: `[bags of a sample * batch + 1]`, start of each bag in `values`, and the end.
            weights: float32 `[ids]`, factor of each row; None is 1.

        Returns:
            Pooled rows, `[batch, bags of a sample * width]`.
        """
        distinct, place = self._distinct(self._numbers(values, offsets))
        with torch.no_grad():
            asked = self._fetch(distinct)
        if torch.is_grad_enabled():
            asked.rows.requires_grad_()
            self._asked = asked
        pooled = embedding_bag(
            place, asked.rows, offsets.long(), mode="sum", per_sample_weights=weights, include_last_offset=True
        )
        return pooled.view(self._bags, -1, self.width).transpose(0, 1).flatten(1)

    def _numbers(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the global number of each row that is looked up."""
        ids_of_bag = offsets[:: (len(offsets) - 1) // self._bags].diff()
        bag = torch.repeat_interleave(ids_of_bag, output_size=len(values))
        rows, device = values.long(), values.device
        beyond = rows - self._replicated.on(device)[bag]
        piece = torch.where(beyond < 0, 0, 1 + beyond.div(self._blocks.on(device)[bag], rounding_mode="floor"))
        return rows + self._shift.on(device)[self._first_piece.on(device)[bag] + piece]

    def _distinct(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distinct row numbers, ascending, and for each row number its index among them.

        If the tables have few rows for each lookup, the rows are marked in a mask, which is faster than a sort.
        """
        if self._bounds[-1] > MARKED_ROWS_A_LOOKUP * len(numbers):
            return numbers.unique(return_inverse=True)
        is_there = numbers.new_zeros(self._bounds[-1], dtype=torch.bool)
        is_there[numbers] = True
        distinct = is_there.nonzero().view(-1)
        place = numbers.new_empty(self._bounds[-1])
        place[distinct] = torch.arange(len(distinct), device=numbers.device)
        return distinct, place[numbers]

    def _fetch(self, distinct: Tensor) -> _FetchedRows:
        """Fetch rows from their owners, given distinct global row numbers in ascending order."""
        edges = torch.searchsorted(distinct, self._edges.on(distinct.device))
        counts: list[list[int]] = torch.stack(of_all(edges.diff())).tolist()
        places = (distinct - self._edges.on(distinct.device)[:-1].repeat_interleave(edges.diff())).int()
        frequent, *of_owner = places.split(counts[self._rank])
        asked_of = [0 if owner == self._rank else rows for owner, rows in enumerate(counts[self._rank][1:])]
        asked_by = [0 if one == self._rank else row[1 + self._rank] for one, row in enumerate(counts)]
        own = of_owner[self._rank]
        others = torch.cat([ids for owner, ids in enumerate(of_owner) if owner != self._rank])
        served = exchanged(others, asked_of, asked_by)
        came = exchanged(self._own.weight.index_select(0, served), asked_by, asked_of).split(asked_of)
        parts = [self._own.weight.index_select(0, own) if one == self._rank else rows for one, rows in enumerate(came)]
        self.traffic.lookups += 1
        self.traffic.rows += sum(asked_of)
        self.traffic.sent_bytes += others.nbytes + sum(asked_by) * self.width * self._own.weight.element_size()
        rows = torch.cat([self._copies.weight.index_select(0, frequent), *parts])
        return _FetchedRows(rows, frequent, counts, own, served)

    @torch.no_grad()
    def after_backward(self) -> None:
        """Send the gradients to the owners, and update the rows that any process has looked up."""
        asked, self._asked = self._asked, None
        if asked is None or asked.rows.grad is None:
            return
        counts, rank = asked.counts, self._rank
        frequent, *of_owner = asked.rows.grad.split(counts[rank])
        others = torch.cat([part for owner, part in enumerate(of_owner) if owner != rank])
        asked_of = [0 if owner == rank else rows for owner, rows in enumerate(counts[rank][1:])]
        asked_by = [0 if one == rank else row[1 + rank] for one, row in enumerate(counts)]
        came = exchanged(others, asked_of, asked_by)
        # Sum in the order of the processes, this one included, so that the sum does not depend on the owner of a row.
        places, gradients = list(asked.served.split(asked_by)), list(came.split(asked_by))
        places[rank], gradients[rank] = asked.own, of_owner[rank]
        self._own.learn(torch.cat(places), torch.cat(gradients), self._count, self.learning_rate)
        copied = [row[0] for row in counts]
        if max(copied):
            every_place = _all_gathered(asked.frequent, copied)
            self._copies.learn(every_place, _all_gathered(frequent, copied), self._count, self.learning_rate)
            self.traffic.sent_bytes += (self._count - 1) * max(copied) * (asked.frequent.itemsize + frequent[:1].nbytes)
        self.traffic.steps += 1
        self.traffic.sent_bytes += others.nbytes

    def set_learning_rate(self, rate: float) -> None:
        """Set the step size of later updates."""
        self.learning_rate = rate

    def shards(self) -> Iterator[Shard]:
        """Yield the table shards of this process."""
        copied = held = 0
        for table in self.tables:
            if table.replicated_rows:
                yield self._copies.shard(table.number, 0, copied, table.replicated_rows, replicated=True)
                copied += table.replicated_rows
            for owner, first, rows in table.blocks():
                if owner == self._rank and rows:
                    yield self._own.shard(table.number, first, held, rows, replicated=False)
                    held += rows


@dataclass(frozen=True)
class _Memory:
    """Rows, `[rows, width]`, with their Adagrad sums, `[rows]`."""

    weight: Tensor
    sums: Tensor

    @classmethod
    def of(cls, rows: int, width: int, device: torch.device) -> "_Memory":
        """Create rows of zeros."""
        return cls(torch.zeros(rows, width, device=device), torch.zeros(rows, device=device))

    def shard(self, table: int, first_row: int, first: int, rows: int, *, replicated: bool) -> Shard:
        """Return a block of a table, which begins at position `first` in this memory."""
        own = slice(first, first + rows)
        return Shard(
            table=table,
            first_row=first_row,
            first_column=0,
            weight=self.weight[own],
            adagrad_sum=self.sums[own],
            replicated=replicated,
        )

    def learn(self, places: Tensor, gradients: Tensor, processes: int, rate: float) -> None:
        """Apply row-wise Adagrad with the mean gradient of the processes; repeated rows are summed in their order."""
        ordered, order = places.long().sort(stable=True)
        rows, repeats = ordered.unique_consecutive(return_counts=True)
        starts = repeats.cumsum(0) - repeats
        mean = embedding_bag(order, gradients, starts, mode="sum") / processes
        sums = self.sums.index_select(0, rows) + mean.square().mean(1)
        self.sums.index_copy_(0, rows, sums)
        self.weight.index_add_(0, rows, mean * (-rate / (sums.sqrt() + EPSILON)).unsqueeze(1))


def exchanged(tensor: Tensor, sends: Sequence[int], receives: Sequence[int], group: Any = None) -> Tensor:
    """Send `sends[i]` rows to process i of a group, part by part, and receive `receives[i]` rows from it."""
    came = tensor.new_empty((sum(receives), *tensor.shape[1:]))
    dist.all_to_all_single(came, tensor.contiguous(), list(receives), list(sends), group=group)
    return came


def _all_gathered(tensor: Tensor, counts: list[int]) -> Tensor:
    """Gather the rows of all processes, one after the other; shorter parts are padded for the transfer."""
    filled = tensor.new_zeros((max(counts), *tensor.shape[1:]))
    filled[: len(tensor)] = tensor
    return torch.cat([part[:count] for part, count in zip(of_all(filled), counts, strict=True)])


def of_all(tensor: Tensor, group: Any = None) -> list[Tensor]:
    """Gather tensors of equal shape from all processes; return them in the order of the ranks."""
    tensors = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors, tensor, group=group)
    return tensors
