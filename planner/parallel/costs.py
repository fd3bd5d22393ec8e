"""What a table asks of each device and link under each placement; sums of it over the tables are what a step takes.

Tables of one kind of placement are looked up by one kernel and exchanged together, as TorchRec does: a group. Each
table adds to its group, for each device,

    lookup, update          seconds of its rows' look-up, and of their update in the backward pass
    ids out, in             bytes of ids that the device sends and receives within its host
    vectors out, in         bytes of pooled rows that it sends and receives in the forward pass; their gradients go back

and the same bytes for each host across hosts. A kind that reduces rows (row_wise) sends partial sums of all bags.
Tables with frequent rows on every device are a group of their own, in which the other rows travel one by one, each once
for a device however many of its samples look it up (`models.embeddings.exchanged`). How much is looked up where follows
from the counted accesses of the rows that lie there, so that a block of frequent rows weighs more. Seconds are
multiples of 2^-44, bytes whole numbers: sums are exact in any order, so that what an edit changes can be taken off and
added on without an error that grows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from hardware.cost.step_model import StepModel, row_seconds, scaled_seconds
from hardware.types import HardwareProfile, Placement
from planner.parallel.demand import FLOAT_BYTES, ModelDemand, TableDemand
from planner.parallel.machine import Machine
from planner.parallel.plan import KINDS, CommunicationPrecision, Kind, Plan, TablePlacement

TICK = 2.0**-44  # of a second
ID_BYTES = 4
# Passes over a table that every device keeps: its gradient is cleared, added to, averaged and squared, and all rows are
# updated (torch's dense kernels, as the row-wise Adagrad of `models.embeddings.sharded` uses them).
DENSE_PASSES = 10
LOOKUP_SHARE = 1 / 3  # of look-up and update together, where they were measured together
ITEM_BYTES: dict[CommunicationPrecision, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
# Operators that the processor of a device dispatches for a group in a step, beside its kernels: ids sorted by owner,
# lengths, splits and permutations, forward; and backward.
GROUP_OPERATORS = (90, 40)
# The same of the tables whose rows travel one by one: rows are numbered, sorted, and fetched; gradients are added up.
# Counted in `models.embeddings.exchanged` by reading, and the passes assumed: executed plans set both right.
ONE_BY_ONE_OPERATORS = (60, 50)
DISTINCT_PASSES = 60  # over the ids of a device as eight bytes each, to number and sort them
COPIES = 2  # beside its weights, of a table that every device keeps: its gradient, and the message of all gradients


Group = Kind | Literal["one_by_one"]


class Choice(NamedTuple):
    """Placement of a table, as the search handles it; see `planner.parallel.plan.TablePlacement`."""

    kind: Kind
    devices: tuple[int, ...] = ()
    replicated_rows: int = 0

    @classmethod
    def of(cls, table: TablePlacement) -> "Choice":
        """Of a placement in a plan."""
        return cls(table.kind, table.devices, table.replicated_rows)

    @property
    def group(self) -> Group:
        """Tables that are exchanged together."""
        return "one_by_one" if self.replicated_rows else self.kind


class Contribution(NamedTuple):
    """What one table adds: pairs of (place among the sums, amount)."""

    amounts: tuple[tuple[int, float], ...]


FIELDS = ("lookup", "update", "ids_out", "ids_in", "out", "in")
HOST_FIELDS = ("ids_out", "ids_in", "out", "in")


class Layout:
    """Where each sum stands in the list of all sums.

    Args:
        machine: Devices and links.
    """

    def __init__(self, machine: Machine) -> None:
        self.count, self.hosts, self.per_host = len(machine.devices), machine.hosts, machine.per_host
        self.groups: tuple[Group, ...] = (
            *(
                kind
                for kind in KINDS
                if self.hosts > 1 or kind not in ("table_row_wise", "table_column_wise", "grid_shard")
            ),
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
        """A sum of a group at a device."""
        return (self._field[field] * len(self.groups) + group) * self.count + device

    def of_host(self, field: str, group: int, host: int) -> int:
        """A sum of a group at a host, of what crosses hosts."""
        return self._host_base + (self._host_field[field] * len(self.groups) + group) * self.hosts + host

    def tables(self, group: int) -> int:
        """Number of tables of a group."""
        return self.tables_base + group

    def memory(self, device: int) -> int:
        """Bytes of tables in a device."""
        return self.memory_base + device


@dataclass(frozen=True)
class RowCosts:
    """What looking up and updating rows costs on a device, without what other tables change.

    Attributes:
        bag_seconds: To pool a bag, look-up and update.
        lookup_seconds: For each id.
        cached_byte_seconds: For each byte of a row from the caches.
        byte_seconds: For each byte of a row from memory.
        copy_bytes_per_second: Rate at which whole tables are worked through.
        operator_seconds: To dispatch an operator.
    """

    bag_seconds: float
    lookup_seconds: float
    cached_byte_seconds: float
    byte_seconds: float
    copy_bytes_per_second: float
    operator_seconds: float

    @classmethod
    def of(cls, profile: HardwareProfile, share: float, row_bytes: float) -> "RowCosts":
        """Of a share of a profile's cores, at rows of a width."""
        copy = profile.copy_bytes_per_second.value * min(1.0, 2 * share)
        overhead = profile.operator_overhead_seconds.value
        if profile.step_costs:
            cores = profile.accelerator.cores if profile.accelerator.kind == "cpu" else 1

            def at_share(name: str) -> float:
                costs = [(one.threads / cores, getattr(one, name)) for one in profile.step_costs]
                return scaled_seconds(costs, max(share, min(of for of, _ in costs)))

            crowd = max(1.0, min(one.threads for one in profile.step_costs) / cores / share)
            factor = crowd * (at_share("memory_factor") or 1.0)
            return cls(
                bag_seconds=factor * at_share("bag_seconds"),
                lookup_seconds=factor * at_share("lookup_seconds"),
                cached_byte_seconds=factor * at_share("cached_byte_seconds"),
                byte_seconds=factor * at_share("byte_seconds"),
                copy_bytes_per_second=copy,
                operator_seconds=overhead,
            )
        gather = profile.gather_bytes_per_second.value * share
        lookup = row_seconds(profile.gather_curve, row_bytes)
        update = row_seconds(profile.scatter_curve, row_bytes)
        each = (lookup / share if lookup else row_bytes / gather) + (
            update / share if update else 2 * row_bytes / gather
        )
        return cls(0.0, 0.0, each / row_bytes, each / row_bytes, copy, overhead)


class TableCosts:
    """Contributions of the tables of a model on a machine.

    Args:
        machine: Devices and links.
        demand: The model.
        batch_size: Samples of a step of all devices together.
        precision: Precision in which pooled rows travel.
    """

    def __init__(
        self, machine: Machine, demand: ModelDemand, batch_size: int, precision: CommunicationPrecision = "fp32"
    ) -> None:
        self.machine, self.demand, self.batch_size, self.precision = machine, demand, batch_size, precision
        self.layout = Layout(machine)
        self.samples = batch_size / len(machine.devices)
        self._item = ITEM_BYTES[precision]
        self._kept: dict[tuple[int, Choice], Contribution] = {}
        self._costs: dict[tuple[int, int], RowCosts] = {}
        self._host_of = [device.host for device in machine.devices]

    def contribution(self, table: int, choice: Choice) -> Contribution:
        """What a table adds under a placement."""
        key = (table, choice)
        if key not in self._kept:
            sums: dict[int, float] = {}
            for place, amount in self._amounts(table, choice):
                sums[place] = sums.get(place, 0.0) + amount
            exact = tuple((place, self._exact(place, amount)) for place, amount in sorted(sums.items()) if amount)
            self._kept[key] = Contribution(tuple((place, amount) for place, amount in exact if amount))
        return self._kept[key]

    def sums(self, choices: "list[Choice]") -> list[float]:
        """Sums of all tables."""
        total = [0.0] * self.layout.size
        for table, choice in enumerate(choices):
            for place, amount in self.contribution(table, choice).amounts:
                total[place] += amount
        return total

    def _exact(self, place: int, amount: float) -> float:
        """Seconds as a multiple of `TICK`, at least one; all else as a whole number."""
        in_seconds = 2 * len(self.layout.groups) * self.layout.count
        return max(1, round(amount / TICK)) * TICK if place < in_seconds else float(round(amount))

    @cached_property
    def cached_shares(self) -> tuple[float, ...]:
        """Share of each table's lookups that the last cache answers when it holds the most frequent rows of all."""
        size = min(device.profile.cache_bytes * device.share for device in self.machine.devices)
        # Rows of all devices together: each caches those that lie with it.
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

    def _amounts(self, number: int, choice: Choice) -> Iterator[tuple[int, float]]:
        if choice.kind == "data_parallel":
            yield from self._copied(number)
        elif choice.replicated_rows:
            yield from self._one_by_one(number, choice)
        else:
            yield from self._divided(number, choice)

    def _copied(self, number: int) -> Iterator[tuple[int, float]]:
        """The table on every device, where each looks up its own samples; its gradient is added up."""
        layout, table = self.layout, self.demand.tables[number]
        group = layout.groups.index("data_parallel")
        row_bytes = table.width * FLOAT_BYTES
        yield layout.tables(group), 1
        yield layout.reduced, table.rows * row_bytes
        for device in range(layout.count):
            seconds = self._rows_seconds(number, device, table.width, samples=self.samples, share=1.0, bags=table.bags)
            passes = DENSE_PASSES * table.rows * row_bytes / self._row_costs(device, table.width).copy_bytes_per_second
            yield layout.of_device("lookup", group, device), LOOKUP_SHARE * seconds
            yield layout.of_device("update", group, device), (1 - LOOKUP_SHARE) * seconds + passes
            yield layout.memory(device), table.rows * (row_bytes * (1 + COPIES) + FLOAT_BYTES)

    def _divided(self, number: int, choice: Choice) -> Iterator[tuple[int, float]]:
        """The rows of the table divided, and pooled by their owners."""
        layout, table = self.layout, self.demand.tables[number]
        group = layout.groups.index(choice.group)
        yield layout.tables(group), 1
        by_row = choice.kind in ("row_wise", "table_row_wise", "grid_shard")
        for device, _, rows, width, part in self._parts(table, choice):
            lookups = part if by_row else 1.0
            bags = table.bags * (min(1.0, lookups * table.ids_per_sample / table.bags) if by_row else 1.0)
            seconds = self._rows_seconds(number, device, width, samples=self.batch_size, share=lookups, bags=bags)
            yield layout.of_device("lookup", group, device), LOOKUP_SHARE * seconds
            yield layout.of_device("update", group, device), (1 - LOOKUP_SHARE) * seconds
            yield layout.memory(device), rows * (width + 1) * FLOAT_BYTES
            sent = self.samples * (table.ids_per_sample * lookups + table.bags) * ID_BYTES
            yield from self._from_all(group, "ids", device, sent)
            vector = self.samples * table.bags * width * self._item
            if choice.kind in ("table_row_wise", "grid_shard"):
                yield from self._staged(group, device, vector)
            else:
                yield from self._to_all(group, device, vector)

    def _one_by_one(self, number: int, choice: Choice) -> Iterator[tuple[int, float]]:
        """Frequent rows on every device, the others fetched and pooled where the samples are (OPER, ATC 2024).

        The gradients of frequent rows are gathered by all, which counts as adding up so many bytes that as many come to
        each device.
        """
        layout, table = self.layout, self.demand.tables[number]
        group, row_bytes = layout.groups.index(choice.group), table.width * FLOAT_BYTES
        lookups = self.samples * table.ids_per_sample
        frequent = table.distinct_rows(0, choice.replicated_rows, lookups)
        yield layout.tables(group), 1
        yield layout.reduced, layout.count / 2 * frequent * (row_bytes + ID_BYTES)
        for device in range(layout.count):
            seconds = self._rows_seconds(number, device, table.width, samples=self.samples, share=1.0, bags=table.bags)
            sort = DISTINCT_PASSES * 8 * lookups / self._row_costs(device, table.width).copy_bytes_per_second
            moved = self._moved_seconds(number, device, frequent)
            yield layout.of_device("lookup", group, device), LOOKUP_SHARE * seconds + sort + moved
            yield layout.of_device("update", group, device), (1 - LOOKUP_SHARE) * seconds + 2 * layout.count * moved
            yield layout.memory(device), choice.replicated_rows * (row_bytes + FLOAT_BYTES)
        for owner, first, rows, width, _ in self._parts(table, choice):
            asked = table.distinct_rows(first, first + rows, lookups)
            moved = layout.count * self._moved_seconds(number, owner, asked)
            yield layout.of_device("lookup", group, owner), moved
            yield layout.of_device("update", group, owner), 2 * moved
            yield layout.memory(owner), rows * (width + 1) * FLOAT_BYTES
            yield from self._from_all(group, "ids", owner, asked * ID_BYTES)
            yield from self._to_all(group, owner, asked * row_bytes)

    def _moved_seconds(self, number: int, device: int, rows: float) -> float:
        """To read so many rows of a table one by one."""
        width = self.demand.tables[number].width
        costs, cached = self._row_costs(device, width), self.cached_shares[number]
        a_byte = cached * costs.cached_byte_seconds + (1 - cached) * costs.byte_seconds
        return rows * (costs.lookup_seconds + width * FLOAT_BYTES * a_byte)

    def _parts(self, table: TableDemand, choice: Choice) -> Iterator[tuple[int, int, int, int, float]]:
        """Device, first row, rows, width and share of the table's lookups of each part."""
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
        """Look-up and update of a share of a table's lookups at a device."""
        table, costs = self.demand.tables[number], self._row_costs(device, width)
        cached = self.cached_shares[number]
        a_byte = cached * costs.cached_byte_seconds + (1 - cached) * costs.byte_seconds
        ids = table.ids_per_sample * share
        return samples * (bags * costs.bag_seconds + ids * (costs.lookup_seconds + width * FLOAT_BYTES * a_byte))

    def _from_all(self, group: int, what: str, owner: int, sent: float) -> Iterator[tuple[int, float]]:
        """Every other device sends so much to the owner."""
        layout, host = self.layout, self._host_of[owner]
        for device in range(layout.count):
            if device != owner and self._host_of[device] == host:
                yield layout.of_device(f"{what}_out", group, device), sent
        yield layout.of_device(f"{what}_in", group, owner), sent * (layout.per_host - 1)
        if layout.hosts > 1:
            for other in range(layout.hosts):
                if other != host:
                    yield layout.of_host(f"{what}_out", group, other), sent * layout.per_host
            yield layout.of_host(f"{what}_in", group, host), sent * (layout.count - layout.per_host)

    def _to_all(self, group: int, owner: int, vector: float) -> Iterator[tuple[int, float]]:
        """The owner sends every other device what it has of that one's samples."""
        layout, host = self.layout, self._host_of[owner]
        for device in range(layout.count):
            if device != owner and self._host_of[device] == host:
                yield layout.of_device("in", group, device), vector
        yield layout.of_device("out", group, owner), vector * (layout.per_host - 1)
        if layout.hosts > 1:
            for other in range(layout.hosts):
                if other != host:
                    yield layout.of_host("in", group, other), vector * layout.per_host
            yield layout.of_host("out", group, host), vector * (layout.count - layout.per_host)

    def _staged(self, group: int, owner: int, vector: float) -> Iterator[tuple[int, float]]:
        """Rows divided within a host: partial sums are added up there first, then each device sends its part across."""
        layout, host = self.layout, self._host_of[owner]
        partial = vector * layout.count * (layout.per_host - 1) / layout.per_host
        yield layout.of_device("out", group, owner), partial
        yield layout.of_device("in", group, owner), partial
        if layout.hosts > 1:
            # The host as a whole sends the sums of the others' samples once: its part falls to each of its devices.
            yield layout.of_host("out", group, host), vector * (layout.count - layout.per_host) / layout.per_host
            for other in range(layout.hosts):
                if other != host:
                    yield layout.of_host("in", group, other), vector


def choices_of(plan: Plan, demand: ModelDemand) -> list[Choice]:
    """The choices of a plan, in the order of the tables."""
    return [Choice.of(plan.tables[table.name]) for table in demand.tables]


def dense_seconds(machine: Machine, demand: ModelDemand, batch_size: int) -> list[float]:
    """Layers of a step on each device, forward, backward and update, with its own part of the batch."""
    alone = demand.workload.model_copy(update={"lookups_per_sample": 0.0, "tables": 0, "input_bytes_per_sample": 0.0})
    samples = max(1, -(-batch_size // len(machine.devices)))
    models: dict[int, StepModel] = {}
    seconds = []
    for device in machine.devices:
        profile = device.profile
        model = models.setdefault(id(profile), StepModel(profile))
        threads = max(1, round(device.share * profile.accelerator.cores)) if profile.accelerator.kind == "cpu" else 1
        placement = Placement(
            accelerator=profile.accelerator.name, threads=threads, precision="fp32", batch_size=samples
        )
        parts = model.parts(alone, placement)
        crowd = max(1.0, threads / (device.share * profile.accelerator.cores)) if device.share < 1 else 1.0
        seconds.append((parts.dense + parts.overhead) * crowd)
    return seconds
