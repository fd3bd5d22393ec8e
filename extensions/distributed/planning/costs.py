"""Costs of a table on each device and link under each placement; their sums over the tables give the step time.

Tables of one kind of placement are looked up by one kernel and exchanged together, as TorchRec does: a group. Each
table adds to its group, for each device,

    lookup, update          seconds of its rows' look-up, and of their update in the backward pass
    ids out, in             bytes of ids that the device sends and receives within its host
    vectors out, in         bytes of pooled rows that it sends and receives in the forward pass; their gradients go back

and, for each host, the same bytes between hosts. A kind that reduces rows (row_wise) sends partial sums of all bags.
Tables with frequent rows on every device are a separate group. Their other rows are sent one by one, once to each
device that looks them up (`shunter.extensions.distributed.tables.exchanged`). The lookups of a device follow from the
counted accesses of its rows, so that a block of frequent rows has more lookups. Seconds are multiples of 2^-44, and
bytes are whole numbers. Sums are therefore exact in any order, so that an edit can subtract and add amounts without a
growing error.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

from shunter.extensions.distributed.planning.demand import FLOAT_BYTES, ModelDemand, TableDemand
from shunter.extensions.distributed.planning.device_costs import RowCosts
from shunter.extensions.distributed.planning.machine import Machine
from shunter.extensions.distributed.tables.sharding_types import (
    BY_ROW,
    OF_HOSTS,
    SHARDING_TYPES,
    Choice,
    CommunicationPrecision,
    ShardingType,
)

TICK = 2.0**-44  # of a second
ID_BYTES = 4
# Passes over a table that every device keeps: its gradient is cleared, added to, averaged and squared, and all rows are
# updated (torch's dense kernels, as the row-wise Adagrad of `shunter.extensions.distributed.tables.sharded` uses them).
DENSE_PASSES = 10
LOOKUP_SHARE = 1 / 3  # of look-up and update together, where they were measured together
ITEM_BYTES: dict[CommunicationPrecision, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
# Operators that the processor of a device dispatches for a group in a step, beside its kernels: ids sorted by owner,
# lengths, splits and permutations, forward; and backward.
GROUP_OPERATORS = (90, 40)
# The same of the tables whose rows travel one by one: rows are numbered, sorted, and fetched; gradients are added up.
# Counted in `shunter.extensions.distributed.tables.exchanged` by reading, and the passes assumed: executed plans set
# both right.
ONE_BY_ONE_OPERATORS = (60, 50)
DISTINCT_PASSES = 60  # over the ids of a device as eight bytes each, to number and sort them
COPIES = 2  # beside its weights, of a table that every device keeps: its gradient, and the message of all gradients


Group = ShardingType | Literal["one_by_one"]


Contribution = tuple[tuple[int, float], ...]
"""Contribution of one table to the sums: pairs (index of the sum, amount)."""

FIELDS = ("lookup", "update", "ids_out", "ids_in", "out", "in")
HOST_FIELDS = ("ids_out", "ids_in", "out", "in")
IDS, VECTORS = ("ids_out", "ids_in"), ("in", "out")  # fields of a message at the other devices, and at the owner


class Layout:
    """Index of each cost that is summed over the tables (see the module) in the list of all these sums."""

    def __init__(self, machine: Machine) -> None:
        self.count, self.hosts, self.per_host = len(machine.devices), machine.hosts, machine.per_host
        self.groups: tuple[Group, ...] = (
            *(kind for kind in SHARDING_TYPES if self.hosts > 1 or kind not in OF_HOSTS),
            "one_by_one",
        )
        self._host_base = len(FIELDS) * len(self.groups) * self.count
        self.tables_base = self._host_base + len(HOST_FIELDS) * len(self.groups) * self.hosts
        self.memory_base = self.tables_base + len(self.groups)
        self.reduced = self.memory_base + self.count
        self.size = self.reduced + 1
        self._field = {name: place for place, name in enumerate(FIELDS)}
        self._host_field = {name: place for place, name in enumerate(HOST_FIELDS)}

    def of_device(self, field: str, group: int, device: int) -> int:
        """Return the index of the sum of a field, such as `lookup`, over the tables of a group at one device."""
        return (self._field[field] * len(self.groups) + group) * self.count + device

    def of_host(self, field: str, group: int, host: int) -> int:
        """Return the index of the sum of a field of traffic between hosts, over a group's tables, at one host."""
        return self._host_base + (self._host_field[field] * len(self.groups) + group) * self.hosts + host

    def tables(self, group: int) -> int:
        """Return the index of the number of tables in a group."""
        return self.tables_base + group

    def memory(self, device: int) -> int:
        """Return the index of the bytes of tables on a device."""
        return self.memory_base + device

    def buffers(self, device: int) -> list[int]:
        """Return the indices of the bytes of pooled rows that a device sends and receives; buffers hold them twice."""
        return [self.of_device(field, group, device) for group in range(len(self.groups)) for field in ("out", "in")]


class TableCosts:
    """Costs that each table adds to the sums of a training step on a machine, cached by placement.

    Args:
        batch_size: Samples per step, summed over all devices.
        precision: Precision in which pooled rows are sent.
        samples: Samples per step on each device; if omitted, equal parts of the batch.
    """

    def __init__(
        self,
        machine: Machine,
        demand: ModelDemand,
        batch_size: int,
        precision: CommunicationPrecision = "fp32",
        samples: Sequence[float] | None = None,
    ) -> None:
        self.machine, self.demand, self.batch_size, self.precision = machine, demand, batch_size, precision
        self.layout = Layout(machine)
        count = len(machine.devices)
        self.samples = tuple(samples or [batch_size / count] * count)
        self._item = ITEM_BYTES[precision]
        self._kept: dict[tuple[int, Choice], Contribution] = {}
        self._costs: dict[tuple[int, int], RowCosts] = {}
        self._host_of = [device.host for device in machine.devices]

    def contribution(self, table: int, choice: Choice) -> Contribution:
        """Return what a table adds to the sums under a placement: pairs of index and amount."""
        key = (table, choice)
        if key not in self._kept:
            if choice.kind == "data_parallel":
                amounts = self._copied(table)
            elif choice.replicated_rows:
                amounts = self._one_by_one(table, choice)
            else:
                amounts = self._divided(table, choice)
            sums: dict[int, float] = {}
            for place, amount in amounts:
                sums[place] = sums.get(place, 0.0) + amount
            # Seconds are rounded to a multiple of `TICK`, at least one, and other amounts to whole numbers.
            in_seconds = 2 * len(self.layout.groups) * self.layout.count
            exact = (
                (place, max(1, round(amount / TICK)) * TICK if place < in_seconds else float(round(amount)))
                for place, amount in sorted(sums.items())
                if amount
            )
            self._kept[key] = tuple((place, amount) for place, amount in exact if amount)
        return self._kept[key]

    def sums(self, choices: "list[Choice]") -> list[float]:
        """Return all sums of the tables' costs under these placements, at the indices of `layout`."""
        total = [0.0] * self.layout.size
        for table, choice in enumerate(choices):
            for place, amount in self.contribution(table, choice):
                total[place] += amount
        return total

    @cached_property
    def cached_shares(self) -> tuple[float, ...]:
        """Return the share of each table's lookups that hit a last-level cache of the hottest rows of all tables."""
        size = min(device.profile.cache_bytes * device.share for device in self.machine.devices)
        # Rows of all devices together: each device caches its own rows.
        room = size * len(self.machine.devices)
        pieces: list[tuple[float, float, int, float]] = []
        for number, table in enumerate(self.demand.tables):
            before = (0.0, 0.0)
            for rows, share in table.by_frequency:
                size_bytes = (rows - before[0]) * (table.width + 1) * FLOAT_BYTES
                lookups = (share - before[1]) * table.ids_per_sample
                if size_bytes > 0:
                    pieces.append((lookups / size_bytes, size_bytes, number, share - before[1]))
                before = (rows, share)
        cached = [0.0] * len(self.demand.tables)
        for _, size_bytes, number, share in sorted(pieces, reverse=True):
            taken = min(1.0, room / size_bytes) if room > 0 else 0.0
            cached[number] += share * taken
            room -= size_bytes * taken
        return tuple(min(1.0, one) for one in cached)

    def _row_costs(self, device: int, width: int) -> RowCosts:
        key = (device, width)
        if key not in self._costs:
            one = self.machine.devices[device]
            self._costs[key] = RowCosts.of(one.profile, one.share, width * FLOAT_BYTES)
        return self._costs[key]

    def _copied(self, number: int) -> Iterator[tuple[int, float]]:
        """Return the costs of a table that is copied to every device; its gradient is all-reduced."""
        layout, table = self.layout, self.demand.tables[number]
        group = layout.groups.index("data_parallel")
        row_bytes = table.width * FLOAT_BYTES
        yield layout.tables(group), 1
        yield layout.reduced, table.rows * row_bytes
        for device in range(layout.count):
            seconds = self._own_seconds(number, device)
            passes = DENSE_PASSES * table.rows * row_bytes / self._row_costs(device, table.width).copy_bytes_per_second
            yield layout.of_device("lookup", group, device), LOOKUP_SHARE * seconds
            yield layout.of_device("update", group, device), (1 - LOOKUP_SHARE) * seconds + passes
            yield layout.memory(device), table.rows * (row_bytes * (1 + COPIES) + FLOAT_BYTES)

    def _divided(self, number: int, choice: Choice) -> Iterator[tuple[int, float]]:
        """Return the costs of a table on one device, or divided among several; each device pools its own part."""
        layout, table = self.layout, self.demand.tables[number]
        group = layout.groups.index(choice.kind)
        yield layout.tables(group), 1
        by_row = choice.kind in BY_ROW
        for device, _, rows, width, part in self._parts(table, choice):
            lookups = part if by_row else 1.0
            bags = table.bags * (min(1.0, lookups * table.ids_per_sample / table.bags) if by_row else 1.0)
            seconds = self._rows_seconds(number, device, width, samples=self.batch_size, share=lookups, bags=bags)
            yield layout.of_device("lookup", group, device), LOOKUP_SHARE * seconds
            yield layout.of_device("update", group, device), (1 - LOOKUP_SHARE) * seconds
            yield layout.memory(device), rows * (width + 1) * FLOAT_BYTES
            of_ids = (table.ids_per_sample * lookups + table.bags) * ID_BYTES
            yield from self._messages(group, device, [of_ids * samples for samples in self.samples], IDS)
            vectors = [table.bags * width * self._item * samples for samples in self.samples]
            if choice.kind in ("table_row_wise", "grid_shard"):
                yield from self._staged(group, device, vectors)
            else:
                yield from self._messages(group, device, vectors, VECTORS)

    def _one_by_one(self, number: int, choice: Choice) -> Iterator[tuple[int, float]]:
        """Yield the costs of a table with frequent rows on every device; its other rows are sent one by one (OPER).

        The gradients of frequent rows are all-gathered, which counts as an all-reduce with the same traffic for each
        device.
        """
        layout, table = self.layout, self.demand.tables[number]
        group, row_bytes = layout.groups.index("one_by_one"), table.width * FLOAT_BYTES
        lookups = [samples * table.ids_per_sample for samples in self.samples]
        frequent = self._distinct_rows(table, 0, choice.replicated_rows)
        yield layout.tables(group), 1
        yield layout.reduced, sum(frequent) / 2 * (row_bytes + ID_BYTES)
        for device in range(layout.count):
            seconds = self._own_seconds(number, device)
            sort = DISTINCT_PASSES * 8 * lookups[device] / self._row_costs(device, table.width).copy_bytes_per_second
            moved = self._moved_seconds(number, device, frequent[device])
            learned = 2 * self._moved_seconds(number, device, sum(frequent))
            yield layout.of_device("lookup", group, device), LOOKUP_SHARE * seconds + sort + moved
            yield layout.of_device("update", group, device), (1 - LOOKUP_SHARE) * seconds + learned
            yield layout.memory(device), choice.replicated_rows * (row_bytes + FLOAT_BYTES)
        for owner, first, rows, width, _ in self._parts(table, choice):
            asked = self._distinct_rows(table, first, first + rows)
            moved = self._moved_seconds(number, owner, sum(asked))
            yield layout.of_device("lookup", group, owner), moved
            yield layout.of_device("update", group, owner), 2 * moved
            yield layout.memory(owner), rows * (width + 1) * FLOAT_BYTES
            yield from self._messages(group, owner, [one * ID_BYTES for one in asked], IDS)
            yield from self._messages(group, owner, [one * row_bytes for one in asked], VECTORS)

    def _distinct_rows(self, table: TableDemand, first: float, last: float) -> list[float]:
        """Return, for each device, how many distinct rows from `first` to `last` (exclusive) its samples look up."""
        each = {
            samples: table.distinct_rows(first, last, samples * table.ids_per_sample) for samples in set(self.samples)
        }
        return [each[samples] for samples in self.samples]

    def _own_seconds(self, number: int, device: int) -> float:
        """Return the seconds of lookup and update for all lookups of a device's own samples in a table."""
        table, samples = self.demand.tables[number], self.samples[device]
        return self._rows_seconds(number, device, table.width, samples=samples, share=1.0, bags=table.bags)

    def _moved_seconds(self, number: int, device: int, rows: float) -> float:
        """Return the seconds to read a number of rows of a table one by one on a device."""
        return rows * self._id_seconds(number, device, self.demand.tables[number].width)

    def _id_seconds(self, number: int, device: int, width: int) -> float:
        """Return the seconds of each looked-up row of a table, or of `width` columns of it, on a device."""
        costs, cached = self._row_costs(device, width), self.cached_shares[number]
        a_byte = cached * costs.cached_byte_seconds + (1 - cached) * costs.byte_seconds
        return costs.lookup_seconds + width * FLOAT_BYTES * a_byte

    def _parts(self, table: TableDemand, choice: Choice) -> Iterator[tuple[int, int, int, int, float]]:
        """Yield each part of a table: device, first row, number of rows, width, and share of the table's lookups."""
        layout, before = self.layout, choice.replicated_rows
        rest = table.rows - before
        if choice.kind == "table_wise":
            yield choice.devices[0], before, rest, table.width, 1.0
            return
        if choice.kind in ("column_wise", "table_column_wise"):
            for device in choice.devices:
                yield device, before, rest, table.width // len(choice.devices), 1.0
            return
        devices = choice.devices or tuple(range(layout.count))
        hosts = sorted({self._host_of[device] for device in devices})
        columns = len(hosts) if choice.kind == "grid_shard" else 1
        over = layout.count if choice.kind == "row_wise" else layout.per_host
        block = -(-rest // over)
        for place, device in enumerate(sorted(devices)):
            low = before + min(rest, (place % over) * block)
            high = before + min(rest, (place % over + 1) * block)
            yield device, low, high - low, table.width // columns, table.share_before(high) - table.share_before(low)

    def _rows_seconds(
        self, number: int, device: int, width: int, *, samples: float, share: float, bags: float
    ) -> float:
        """Return the seconds of lookup and update for a share of a table's lookups on a device."""
        ids = self.demand.tables[number].ids_per_sample * share
        bag_seconds = self._row_costs(device, width).bag_seconds
        return samples * (bags * bag_seconds + ids * self._id_seconds(number, device, width))

    def _messages(
        self, group: int, owner: int, amounts: Sequence[float], fields: tuple[str, str]
    ) -> Iterator[tuple[int, float]]:
        """Yield the bytes exchanged between a table's owner and every other device, as pairs of sum index and amount.

        `amounts` are the bytes for the samples of each device; `fields` name the sums at the others and at the owner.
        """
        layout, (at_others, at_owner) = self.layout, fields
        near, far = self._by_distance(owner, amounts)
        for device, amount in near.items():
            yield layout.of_device(at_others, group, device), amount
        yield layout.of_device(at_owner, group, owner), sum(near.values())
        if layout.hosts > 1:
            for other, amount in far.items():
                yield layout.of_host(at_others, group, other), amount
            yield layout.of_host(at_owner, group, self._host_of[owner]), sum(far.values())

    def _by_distance(self, owner: int, amounts: Sequence[float]) -> tuple[dict[int, float], dict[int, float]]:
        """Return the amounts of the other devices on the owner's host by device, and of the other hosts by host."""
        near: dict[int, float] = {}
        far: dict[int, float] = {}
        for device, amount in enumerate(amounts):
            host = self._host_of[device]
            if host != self._host_of[owner]:
                far[host] = far.get(host, 0.0) + amount
            elif device != owner:
                near[device] = amount
        return near, far

    def _staged(self, group: int, owner: int, vectors: Sequence[float]) -> Iterator[tuple[int, float]]:
        """Yield bytes sent for rows divided within a host, by sum index: partial sums are added, then sent to hosts."""
        layout, host = self.layout, self._host_of[owner]
        partial = sum(vectors) * (layout.per_host - 1) / layout.per_host
        yield layout.of_device("out", group, owner), partial
        yield layout.of_device("in", group, owner), partial
        if layout.hosts > 1:
            # The host as a whole sends the sums of the others' samples once: its part falls to each of its devices.
            _, far = self._by_distance(owner, vectors)
            yield layout.of_host("out", group, host), sum(far.values()) / layout.per_host
            for other, amount in far.items():
                yield layout.of_host("in", group, other), amount / layout.per_host
