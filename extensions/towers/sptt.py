"""Embedding tables on the host of their tower, and the semantic-preserving tower transform (SPTT) between hosts.

After DMT (Luo et al., MLSys 2024, arXiv 2403.00877). In the flat exchange every process receives the embeddings of its
samples from every other process, and most processes are on other hosts. The transform needs fewer messages. Processes
with the same index on different hosts are peers. The steps of the transform are:

    1. send the ids of the whole batch to the owners of the tables   [processes * batch, own tables]
    2. lookup
    3. sort the samples by the peer that they belong to
    4. within the host: all fields of the host's tower(s)            [hosts * batch, fields of the host, dim]
       (here a tower module compresses, see `shunter.extensions.towers.dmt`)
    5. across hosts, among peers: all towers of the own samples      [batch, fields, dim]
    6. sort the fields into the order of the data

Without a tower module nothing is computed between the steps, so results and gradients equal those of the flat exchange
bit by bit. With T hosts of L processes, a process receives E (T - 1) / T of its E bytes from other hosts in both cases.
For these bytes the flat exchange needs T L - L messages, and the transform T - 1 messages. A tower module with
compression ratio CR divides the bytes by CR.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor

from shunter.extensions.distributed.training.hosts import Hosts, Members, exchange
from shunter.extensions.towers.dmt import Towers
from shunter.extensions.towers.tower_partitioner import longest_first
from shunter.models.constant import Constant
from shunter.models.embeddings.initial_weights import draw_tables
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.embeddings.request import Kernel
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.shards import Shard, copy_block


@dataclass(frozen=True, kw_only=True)
class TowerLayout:
    """Assignment of fields to hosts, and of their tables to the processes of each host.

    Attributes:
        fields: Positions of the fields of each host, in the order of its towers' inputs.
        owned: Positions of the fields whose tables each process stores; the first host's processes come first.
    """

    fields: Towers
    owned: Towers

    def __post_init__(self) -> None:
        per_host = len(self.owned) // len(self.fields)
        for host, fields in enumerate(self.fields):
            held = [field for own in self.owned[host * per_host : (host + 1) * per_host] for field in own]
            assert sorted(held) == sorted(fields), "a host's processes hold the tables of its towers, each once"

    @classmethod
    def divide(cls, fields: Towers, processes_per_host: int, rows: Sequence[int]) -> Self:
        """Assign whole tables to the processes of a host, so that all have about equally many rows."""
        owned: list[tuple[int, ...]] = []
        for here in fields:
            process_of = longest_first(np.array([rows[field] for field in here], dtype=float), processes_per_host)
            for process in range(processes_per_host):
                owned.append(tuple(field for field, owner in zip(here, process_of, strict=True) if owner == process))
        return cls(fields=fields, owned=tuple(owned))


class TowerEmbeddings(EmbeddingTables):
    """Embedding tables divided by tower; each process updates its own tables in the backward pass.

    Every process must call this module at the same time, with batches of equal size. The gradient of the loss is
    averaged over the processes. The update is row-wise Adagrad. The module has no `weight` or `adagrad_sum`; `shards`
    yields this process's tables.

    Args:
        rows: Number of rows of each table.
        dim: Width of every row.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device of this process.
        hosts: Processes, grouped by host.
        layout: Host of each table.
        kernel: Kernel of the lookup.
    """

    def __init__(
        self,
        rows: Sequence[int],
        dim: int,
        *,
        learning_rate: float,
        device: torch.device,
        hosts: Hosts,
        layout: TowerLayout,
        kernel: Kernel = "auto",
    ) -> None:
        super().__init__(rows, dim, learning_rate)
        self.hosts, self.layout, self.device = hosts, layout, device
        self.own = layout.owned[hosts.rank]
        first = hosts.host * hosts.processes_per_host
        self._owned_here = layout.owned[first : first + hosts.processes_per_host]
        fields = layout.fields[hosts.host]
        self._by_tower = _order([field for tower in layout.fields for field in tower])
        self._within_host = _order([fields.index(field) for own in self._owned_here for field in own])
        own_rows = [rows[table] for table in self.own]
        # The tables are not submodules: each process has only some tables of the model, which checkpoints merge.
        build = partial(build_embeddings, learning_rate=learning_rate, device=device, kernel=kernel)
        self._tables = (build(own_rows, dim) if own_rows else None,)

    def forward(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up one batch; the process that stores the rows applies the weight decay."""
        vectors = self.lookup(values, offsets, weights)
        return vectors.detach() if self.is_frozen else vectors

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up all fields of this process's samples by the transform, `[batch, fields, dim]`; ids are unweighted."""
        assert weights is None, "where ids have weights, tables are divided by TorchRec"
        counts = [len(fields) for fields in self.layout.fields]
        together = self.to_samples(self.to_towers(values, offsets), counts)
        return _reordered(together, self._by_tower)

    def to_towers(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Look up and send vectors to towers (steps 1 to 4); return the host's fields for the samples of all peers.

        Args:
            values: Ids of this process's samples, as for `forward`.
            offsets: Offsets into `values`, as for `forward`.

        Returns:
            `[hosts * batch, fields of the host, dim]`, in the order of `TowerLayout.fields`.
        """
        pooled = self._lookup_own(values, offsets)
        hosts, each = self.hosts, len(pooled) // len(self.layout.owned)
        by_place = pooled.view(hosts.count, hosts.processes_per_host, each, len(self.own), self.dim).transpose(0, 1)
        counts = [len(own) for own in self._owned_here]
        received = _exchange_rows(by_place.flatten(0, 2), hosts.local_members, hosts.count * each, counts)
        return _reordered(received, self._within_host)

    def to_samples(self, vectors: Tensor, counts: Sequence[int]) -> Tensor:
        """Return tower outputs to their samples (step 5): exchange vectors with the peers on other hosts.

        Args:
            vectors: Vectors of this host for all peers' samples, `[hosts * batch, vectors of this host, width]`.
            counts: Number of vectors of each host.

        Returns:
            `[batch, vectors of all hosts, width]`.
        """
        return _exchange_rows(vectors, self.hosts.peers, len(vectors) // self.hosts.count, counts)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of this module and of this process's tables."""
        super().set_learning_rate(rate)
        (tables,) = self._tables
        if tables is not None:
            tables.set_learning_rate(rate)

    def freeze_tables(self, tables: Collection[int]) -> None:
        """Freeze the given tables in the processes that store them."""
        (own,) = self._tables
        if own is not None:
            own.freeze_tables({place for place, table in enumerate(self.own) if table in tables})

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw the initial weights of all tables, equal in every process, and store those of this process's tables."""
        shards = {shard.table: shard for shard in self.shards()}
        for table, first_row, drawn in draw_tables(self.rows, self.dim, generator, self.initial_bound):
            if table in shards:
                copy_block(drawn, first_row, 0, shards[table])
        for shard in shards.values():
            shard.adagrad_sum.zero_()

    def shards(self) -> Iterator[Shard]:
        """Yield the tables that this process stores, with their optimizer state."""
        (tables,) = self._tables
        if tables is None:
            return
        parts = zip(self.own, tables.weight.split(tables.rows), tables.adagrad_sum.split(tables.rows), strict=True)
        for table, weight, sums in parts:
            yield Shard(table=table, first_row=0, first_column=0, weight=weight, adagrad_sum=sums, replicated=False)

    def _lookup_own(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Look up this process's tables (steps 1 and 2): `[processes * batch, own tables, dim]`, by process."""
        (tables,) = self._tables
        batch = (len(offsets) - 1) // len(self.rows)
        values, offsets = self._send_ids(values, offsets)
        if tables is None:
            samples = len(self.layout.owned) * batch
            # A process without tables takes part in the exchange of gradients too.
            return torch.zeros(samples, 0, self.dim, device=self.device, requires_grad=torch.is_grad_enabled())
        tables.l2 = self.l2
        pooled = tables(values, offsets)
        means = pooled.view_as(pooled)  # a separate tensor, so that this hook runs before the hook of the weight decay
        if means.requires_grad:
            means.register_hook(lambda gradient: gradient / len(self.layout.owned))
        return means

    def _send_ids(self, values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Exchange ids (step 1); return the ids for this process's tables, by table and then by process."""
        owned, everyone = self.layout.owned, self.hosts.everyone
        fields, processes = [field for own in owned for field in own], len(owned)
        lengths = offsets.diff().view(len(self.rows), -1)
        batch = lengths.shape[1]
        counts = lengths.sum(1).tolist()
        ids = values.split(counts)
        received = everyone.all_to_all(
            lengths[fields].flatten(),
            [len(own) * batch for own in owned],
            [len(self.own) * batch] * processes,
            "ids",
        ).view(processes, len(self.own), batch)
        by_segment = received.sum(2)
        values = everyone.all_to_all(
            torch.cat([ids[field] for field in fields]),
            [sum(counts[field] for field in own) for own in owned],
            by_segment.sum(1).tolist(),
            "ids",
        )
        segments = values.split(by_segment.flatten().tolist())
        by_table = [segments[table :: len(self.own)] for table in range(len(self.own))]
        starts = received.transpose(0, 1).flatten().cumsum(0)
        return (
            torch.cat([values[:0], *(segment for table in by_table for segment in table)]),
            torch.cat([starts.new_zeros(1), starts]).to(offsets.dtype),
        )


def _exchange_rows(rows: Tensor, members: Members, samples: int, counts: Sequence[int]) -> Tensor:
    """Send vectors `[members * samples, own vectors, width]` to each member of a group.

    Returns the received vectors of this process's samples, `[samples, vectors of all members, width]`; `counts` has
    the number of vectors per sample of each member.
    """
    own, width = rows.shape[1:]
    receive = [samples * count * width for count in counts]
    received = exchange(rows.reshape(-1), members, [samples * own * width] * len(counts), receive)
    parts = zip(received.split(receive), counts, strict=True)
    return torch.cat([part.view(samples, count, width) for part, count in parts], dim=1)


def _order(positions: Sequence[int]) -> Constant | None:
    """Return the index that sorts vectors by their target positions; None if they are sorted already."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    return None if order == list(range(len(order))) else Constant(order)


def _reordered(vectors: Tensor, order: Constant | None) -> Tensor:
    """Return vectors `[batch, vectors, dim]` in the order of an index."""
    return vectors if order is None else vectors.index_select(1, order.on(vectors.device))
