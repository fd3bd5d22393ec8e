"""Divided tables whose rows travel one by one: the first rows lie in every process, each other row in one of them.

What OPER executes (ATC 2024): rows that are looked up most are read and learned where a sample is, and of the others a
process asks their owner for each row that its samples look up, once however many do, where TorchRec exchanges a pooled
vector for every bag. So few bytes travel where few rows get most of the lookups. A row is found by arithmetic, from the
block that it is in, and no map of rows is held.

A step has two exchanges. In the forward pass ids go to the owners and rows come back; the bags are added up here. After
the backward pass gradients go the same way, and each owner adds up what all processes send of a row, in their order.
The frequent rows' gradients are gathered by all, and every process adds them up alike, so that its copies stay equal
to the last bit. Both learn by exact row-wise Adagrad from the gradient averaged over the processes, as
`shunter.models.embeddings.sharded` does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.functional import embedding_bag

from shunter.models.constant import Constant
from shunter.models.embeddings.role import EPSILON
from shunter.models.embeddings.row_traffic import RowTraffic
from shunter.models.embeddings.shards import Shard

MARKED_ROWS_A_LOOKUP = 16


@dataclass(frozen=True, kw_only=True)
class ExchangedTable:
    """A table and who holds which of its rows.

    Attributes:
        number: Its number in the model.
        rows: Rows.
        replicated_rows: First rows of which every process has a copy.
        owners: Processes that hold the others, a block of equal size each, in their order.
    """

    number: int
    rows: int
    replicated_rows: int
    owners: tuple[int, ...]

    @property
    def block(self) -> int:
        """Rows of a block; the last may be shorter."""
        return -(-(self.rows - self.replicated_rows) // len(self.owners))

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """Owner, first row and number of rows of each block."""
        for place, owner in enumerate(self.owners):
            first = min(self.rows, self.replicated_rows + place * self.block)
            yield owner, first, min(self.rows, first + self.block) - first


@dataclass(frozen=True)
class _Asked:
    """The rows that a lookup took, as the update needs them again.

    Attributes:
        rows: `[distinct rows, width]`, the frequent ones first, then owner by owner; they collect the gradient.
        frequent: Frequent rows among them, by their place in the copies.
        counts: `[processes][1 + processes]`, distinct rows that each process looked up: frequent, and of each owner.
        own: Rows of this process that its own samples looked up, by their place.
        served: Rows of this process that the others asked for, by their place, one process after the other.
    """

    rows: Tensor
    frequent: Tensor
    counts: list[list[int]]
    own: Tensor
    served: Tensor


class RowExchange:
    """Tables of one width whose rows travel one by one; every process calls each method at the same time.

    Args:
        tables: The tables.
        width: Numbers of a row.
        table_of: Table of each bag of a sample, as a place among `tables`.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device of this process.

    Attributes:
        traffic: What this process has asked and sent.
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
        # Rows are numbered anew: the copies first, then those of one owner after the other.
        self._bounds = [0, *accumulate([len(self._copies.sums), *held])]
        assert max(len(self._copies.sums), *held) < 2**31, "places of rows travel as int32"
        self._edges = Constant(self._bounds)
        pieces = 1 + max(len(table.owners) for table in tables)
        self._replicated = Constant([tables[one].replicated_rows for one in table_of])
        self._blocks = Constant([tables[one].block for one in table_of])
        shifts = self._shifts(pieces)
        self._shift = Constant([shifts[one][piece] for one in table_of for piece in range(pieces)])
        self._first_piece = Constant([bag * pieces for bag in range(self._bags)])
        self._asked: _Asked | None = None
        self.traffic = RowTraffic()

    def _shifts(self, pieces: int) -> list[list[int]]:
        """What is added to a row of each piece of each table, of its copies first, to get its number."""
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
        """Sum the rows of each bag of this process's samples, wherever they lie.

        Args:
            values: Rows, bag by bag of a sample, and sample by sample for each.
            offsets: `[bags of a sample * batch + 1]`, where each bag starts in `values`, and the end.
            weights: float32 `[ids]`, what each row is multiplied by; None is 1.

        Returns:
            `[batch, bags of a sample * width]`.
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
        """The number of each row that is looked up."""
        ids_of_bag = offsets[:: (len(offsets) - 1) // self._bags].diff()
        bag = torch.repeat_interleave(ids_of_bag, output_size=len(values))
        rows, device = values.long(), values.device
        beyond = rows - self._replicated.on(device)[bag]
        piece = torch.where(beyond < 0, 0, 1 + beyond.div(self._blocks.on(device)[bag], rounding_mode="floor"))
        return rows + self._shift.on(device)[self._first_piece.on(device)[bag] + piece]

    def _distinct(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The distinct numbers, ascending, and the place of each number among them.

        Where there are not many more rows than lookups, all rows are marked, which is faster than a sort.
        """
        if self._bounds[-1] > MARKED_ROWS_A_LOOKUP * len(numbers):
            return numbers.unique(return_inverse=True)
        is_there = numbers.new_zeros(self._bounds[-1], dtype=torch.bool)
        is_there[numbers] = True
        distinct = is_there.nonzero().view(-1)
        place = numbers.new_empty(self._bounds[-1])
        place[distinct] = torch.arange(len(distinct), device=numbers.device)
        return distinct, place[numbers]

    def _fetch(self, distinct: Tensor) -> _Asked:
        """Get these rows, given by their ascending numbers."""
        edges = torch.searchsorted(distinct, self._edges.on(distinct.device))
        counts = self._gathered(edges.diff())
        places = (distinct - self._edges.on(distinct.device)[:-1].repeat_interleave(edges.diff())).int()
        frequent, *of_owner = places.split(counts[self._rank])
        asked_of = [0 if owner == self._rank else rows for owner, rows in enumerate(counts[self._rank][1:])]
        asked_by = [0 if one == self._rank else row[1 + self._rank] for one, row in enumerate(counts)]
        own = of_owner[self._rank]
        others = torch.cat([ids for owner, ids in enumerate(of_owner) if owner != self._rank])
        served = _exchanged(others, asked_of, asked_by)
        came = _exchanged(self._own.weight.index_select(0, served), asked_by, asked_of).split(asked_of)
        parts = [self._own.weight.index_select(0, own) if one == self._rank else rows for one, rows in enumerate(came)]
        self.traffic.lookups += 1
        self.traffic.rows += sum(asked_of)
        self.traffic.sent_bytes += others.nbytes + sum(asked_by) * self.width * self._own.weight.element_size()
        rows = torch.cat([self._copies.weight.index_select(0, frequent), *parts])
        return _Asked(rows, frequent, counts, own, served)

    def _gathered(self, counts: Tensor) -> list[list[int]]:
        """The counts of all processes."""
        of_all = [torch.empty_like(counts) for _ in range(self._count)]
        dist.all_gather(of_all, counts)
        return torch.stack(of_all).tolist()

    @torch.no_grad()
    def after_backward(self) -> None:
        """Bring the gradients to the owners, and update the rows that any process has looked up."""
        asked, self._asked = self._asked, None
        if asked is None or asked.rows.grad is None:
            return
        counts, rank = asked.counts, self._rank
        frequent, *of_owner = asked.rows.grad.split(counts[rank])
        others = torch.cat([part for owner, part in enumerate(of_owner) if owner != rank])
        asked_of = [0 if owner == rank else rows for owner, rows in enumerate(counts[rank][1:])]
        asked_by = [0 if one == rank else row[1 + rank] for one, row in enumerate(counts)]
        came = _exchanged(others, asked_of, asked_by)
        # In the order of the processes, the own among them: so the sum does not depend on who owns a row.
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
        """Step size of the updates from now on."""
        self.learning_rate = rate

    def shards(self) -> Iterator[Shard]:
        """The blocks that lie in this process."""
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
    """Rows with the state of their optimiser.

    Attributes:
        weight: `[rows, width]`.
        sums: `[rows]`.
    """

    weight: Tensor
    sums: Tensor

    @classmethod
    def of(cls, rows: int, width: int, device: torch.device) -> "_Memory":
        """Zeros."""
        return cls(torch.zeros(rows, width, device=device), torch.zeros(rows, device=device))

    def shard(self, table: int, first_row: int, first: int, rows: int, *, replicated: bool) -> Shard:
        """A block of a table, which lies here from `first` on."""
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
        """Row-wise Adagrad by the mean over the processes; places may repeat, and are added up in their order."""
        ordered, order = places.long().sort(stable=True)
        rows, repeats = ordered.unique_consecutive(return_counts=True)
        starts = repeats.cumsum(0) - repeats
        mean = embedding_bag(order, gradients, starts, mode="sum") / processes
        sums = self.sums.index_select(0, rows) + mean.square().mean(1)
        self.sums.index_copy_(0, rows, sums)
        self.weight.index_add_(0, rows, mean * (-rate / (sums.sqrt() + EPSILON)).unsqueeze(1))


def _exchanged(tensor: Tensor, sends: list[int], receives: list[int]) -> Tensor:
    """Send so many rows to each process, one part after the other, and get so many from each."""
    came = tensor.new_empty((sum(receives), *tensor.shape[1:]))
    dist.all_to_all_single(came, tensor.contiguous(), receives, sends)
    return came


def _all_gathered(tensor: Tensor, counts: list[int]) -> Tensor:
    """The rows of all processes, one after the other; all send as many as the one with most."""
    longest = max(counts)
    filled = tensor.new_zeros((longest, *tensor.shape[1:]))
    filled[: len(tensor)] = tensor
    of_all = [torch.empty_like(filled) for _ in counts]
    dist.all_gather(of_all, filled)
    return torch.cat([part[:count] for part, count in zip(of_all, counts, strict=True)])
