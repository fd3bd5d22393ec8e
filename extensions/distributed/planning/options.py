"""Possible placements of a table on a machine, and the initial plans of a search.

Some initial plans assign whole tables to devices evenly, greedily or by differencing, and copy small tables to each.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Literal

from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.demand import ModelDemand, TableDemand
from shunter.extensions.distributed.planning.machine import Machine
from shunter.extensions.distributed.tables.sharding_types import Choice, can_divide_rows

Space = Literal["exact", "executable", "all"]
FEWEST_COLUMNS = 4  # FBGEMM's rows are multiples of four floats
HOT_SHARES = (0.05, 0.2, 0.5, 0.8)  # of a table's lookups that the replicated rows get, where that takes few rows
MOST_HOT_ROWS = 0.25  # of the table
FEWEST_ROWS_HOT = 1_000
COPIED_SHARES = (0.25, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the tables that a mixed plan copies


def options_of(table: TableDemand, machine: Machine, space: Space) -> list[Choice]:
    """Return all placements that a table may have in a set of plans.

    A table is divided by row only if each block gets a row. Rows are replicated only if a few rows get many of the
    lookups.
    """
    count = len(machine.devices)
    if count == 1:
        return [Choice("table_wise", (0,))]
    devices = range(count)
    divided = [Choice("table_wise", (one,)) for one in devices]
    if can_divide_rows(table.rows, count):
        divided.append(Choice("row_wise"))
    hosts = [tuple(range(h * machine.per_host, (h + 1) * machine.per_host)) for h in range(machine.hosts)]
    if machine.hosts > 1 and machine.per_host > 1 and can_divide_rows(table.rows, machine.per_host):
        divided += [Choice("table_row_wise", host) for host in hosts]
    if space != "exact":
        divided += _columns(table, machine, hosts)
    hot: set[int] = set()  # numbers of rows to replicate: the fewest rows with the lookup shares `HOT_SHARES`
    if space != "exact" and table.rows >= FEWEST_ROWS_HOT:
        for share in HOT_SHARES:
            rows = next((int(rows) for rows, reached in table.in_order if reached >= share), table.rows)
            if rows <= MOST_HOT_ROWS * table.rows and can_divide_rows(table.rows - rows, count):
                hot.add(rows)
    return [Choice("data_parallel"), *divided, *(Choice("row_wise", replicated_rows=rows) for rows in sorted(hot))]


def _columns(table: TableDemand, machine: Machine, hosts: Sequence[tuple[int, ...]]) -> list[Choice]:
    count, found = len(machine.devices), []
    parts = 2
    while parts <= count and table.width % parts == 0 and table.width // parts >= FEWEST_COLUMNS:
        for first in range(0, count, parts):
            if first + parts <= count:
                found.append(Choice("column_wise", tuple(range(first, first + parts))))
        parts *= 2
    if machine.hosts > 1:
        width = table.width // machine.per_host
        if table.width % machine.per_host == 0 and width >= FEWEST_COLUMNS and machine.per_host > 1:
            found += [Choice("table_column_wise", host) for host in hosts]
        wide = table.width % machine.hosts == 0 and table.width // machine.hosts >= FEWEST_COLUMNS
        if wide and can_divide_rows(table.rows, machine.per_host):
            found.append(Choice("grid_shard", tuple(range(count))))
    return found


def data_parallel(demand: ModelDemand) -> list[Choice]:
    """Return the plan with a copy of every table on every device."""
    return [Choice("data_parallel")] * len(demand.tables)


def manual_plan(demand: ModelDemand, machine: Machine) -> list[Choice]:
    """Return FlexFlow's manual strategy for DLRM: whole tables, on the devices in turn (`dlrm_strategy.py`)."""
    return [Choice("table_wise", (place % len(machine.devices),)) for place in range(len(demand.tables))]


def all_row_wise(demand: ModelDemand, machine: Machine) -> list[Choice]:
    """Return a plan with tables divided by row over all devices; indivisible tables are whole, on devices in turn."""
    count = len(machine.devices)
    return [
        Choice("row_wise")
        if can_divide_rows(table.rows, count) and count > 1
        else Choice("table_wise", (place % count,))
        for place, table in enumerate(demand.tables)
    ]


def greedy(loads: Sequence[float], sizes: Sequence[float], room: Sequence[float]) -> list[int] | None:
    """Assign the largest load first, each to the least loaded device where it fits (Graham, 1969); None if impossible.

    `loads` and `sizes` are seconds and bytes of each table, `room` the bytes of free memory of each device.
    """
    return earliest_end([[load] * len(room) for load in loads], sizes, room)


def differencing(loads: Sequence[float], devices: int) -> list[int]:
    """Assign loads by the largest differencing method (Karmarkar and Karp, 1982) for any number of devices.

    Each table starts as a separate partition. The two partitions with the largest differences between devices are
    merged, the most loaded device of one with the least loaded of the other, until one is left.
    """
    queue: list[tuple[float, int, list[tuple[float, list[int]]]]] = []
    for table, load in enumerate(loads):
        parts: list[tuple[float, list[int]]] = [(load, [table]), *((0.0, []) for _ in range(devices - 1))]
        queue.append((-load, table, parts))
    heapify(queue)
    number = len(loads)
    while len(queue) > 1:
        (_, _, first), (_, _, second) = heappop(queue), heappop(queue)
        together = [
            (one[0] + other[0], one[1] + other[1])
            for one, other in zip(first, sorted(second, key=lambda part: part[0]), strict=True)
        ]
        together.sort(key=lambda part: -part[0])
        heappush(queue, (together[-1][0] - together[0][0], number, together))
        number += 1
    found = [0] * len(loads)
    if queue:
        for device, (_, tables) in enumerate(queue[0][2]):
            for table in tables:
                found[table] = device
    return found


def best_of_both(loads: Sequence[float], sizes: Sequence[float], room: Sequence[float]) -> list[int] | None:
    """Return the better of `greedy` and `differencing` by the most loaded device; None if tables do not fit."""
    found = [one for one in (greedy(loads, sizes, room), differencing(loads, len(room))) if one is not None]
    fitting = [
        one for one in found if all(used <= has for used, has in zip(_sums(sizes, one, room), room, strict=True))
    ]
    return min(fitting, key=lambda one: max(_sums(loads, one, room)), default=None)


def earliest_end(loads: Sequence[Sequence[float]], sizes: Sequence[float], room: Sequence[float]) -> list[int] | None:
    """Assign loads to unequal devices: the largest load first, each to the device that ends first and where it fits.

    List scheduling for machines of unequal speed (Gonzalez, Ibarra and Sahni, 1977). `loads` are the seconds of each
    table on each device, `sizes` and `room` the bytes of tables and of free memory.
    """
    ends, left = [0.0] * len(room), list(room)
    found = [0] * len(loads)
    for table in sorted(range(len(loads)), key=lambda one: (-max(loads[one]), -sizes[one], one)):
        fitting = [device for device in range(len(room)) if sizes[table] <= left[device]]
        if not fitting:
            return None
        device = min(fitting, key=lambda one: (ends[one] + loads[table][one], one))
        found[table] = device
        ends[device] += loads[table][device]
        left[device] -= sizes[table]
    return found


def whole_tables(costs: TableCosts) -> list[Choice] | None:
    """Place each table whole on one device, balanced by seconds; None if the tables do not fit."""
    layout = costs.layout
    loads, sizes = [], []
    for table in range(len(costs.demand.tables)):
        seconds, size = [0.0] * layout.count, 0.0
        for device in range(layout.count):
            for place, amount in costs.contribution(table, Choice("table_wise", (device,))):
                if place == layout.memory(device):
                    size = amount
                elif place < 2 * len(layout.groups) * layout.count:
                    seconds[device] += amount
        loads.append(seconds)
        sizes.append(size)
    room = [float(device.memory_bytes) for device in costs.machine.devices]
    if all(len(set(seconds)) == 1 for seconds in loads):
        found = best_of_both([seconds[0] for seconds in loads], sizes, room)
    else:
        found = earliest_end(loads, sizes, room)
    return None if found is None else [Choice("table_wise", (device,)) for device in found]


def small_tables_copied(costs: TableCosts) -> dict[str, list[Choice]]:
    """Return plans that copy the smaller tables to each device and place the others whole or divided by row.

    Several numbers of copied tables and ways to divide the others are tried. Single changes hardly lead from one of
    these plans to another, because each kind of exchange has its own cost in a step.
    """
    tables = costs.demand.tables
    order = sorted(range(len(tables)), key=lambda one: (tables[one].rows * tables[one].width, one))
    counts = sorted({round(len(tables) * share) for share in COPIED_SHARES})
    whole = whole_tables(costs)
    by_row = [_if_divisible(table.rows, costs.layout.count, Choice("row_wise")) for table in tables]
    found = {}
    for count in counts:
        copied = set(order[:count])
        rest = {"whole": whole, "by row": by_row, "by row within hosts": _within_hosts(costs, copied)}
        for name, choices in rest.items():
            if choices is not None:
                found[f"{count} copied, the rest {name}"] = [
                    Choice("data_parallel") if table in copied else choice for table, choice in enumerate(choices)
                ]
    return found


def _within_hosts(costs: TableCosts, copied: set[int]) -> list[Choice] | None:
    """Return a plan with each table copied or divided by row within one host, for several hosts; hosts are balanced."""
    layout, tables = costs.layout, costs.demand.tables
    if layout.hosts == 1 or layout.per_host == 1:
        return None
    loads = [0.0 if one in copied else table.bags * table.width for one, table in enumerate(tables)]
    hosts = greedy(loads, [0.0] * len(tables), [1.0] * layout.hosts)
    assert hosts is not None, "nothing takes room"
    devices = [tuple(range(host * layout.per_host, (host + 1) * layout.per_host)) for host in range(layout.hosts)]
    return [
        _if_divisible(table.rows, layout.per_host, Choice("table_row_wise", devices[host]))
        for table, host in zip(tables, hosts, strict=True)
    ]


def _if_divisible(rows: int, parts: int, choice: Choice) -> Choice:
    """Return the placement `choice` if every part gets a row, else the placement with a copy on every device."""
    return choice if can_divide_rows(rows, parts) else Choice("data_parallel")


def _sums(amounts: Sequence[float], devices: Sequence[int], room: Sequence[float]) -> list[float]:
    total = [0.0] * len(room)
    for amount, device in zip(amounts, devices, strict=True):
        total[device] += amount
    return total
