"""Possible placements of a table on a machine, and the initial plans of a search."""

from collections.abc import Sequence
from typing import Literal

from shunter.extensions.distributed.planning.demand import ModelDemand, TableDemand
from shunter.extensions.distributed.planning.machine import Machine
from shunter.extensions.distributed.tables.sharding_types import Choice, can_divide_rows

Space = Literal["exact", "executable", "all"]
FEWEST_COLUMNS = 4  # FBGEMM's rows are multiples of four floats
HOT_SHARES = (0.05, 0.2, 0.5, 0.8)  # of a table's lookups that the replicated rows get, where that takes few rows
MOST_HOT_ROWS = 0.25  # of the table
FEWEST_ROWS_HOT = 1_000


def options_of(table: TableDemand, machine: Machine, space: Space) -> list[Choice]:
    """Return all placements that the table may have.

    A table is divided by row only if each block gets a row. Rows are replicated only if a few rows get many of the
    lookups.

    Args:
        table: The table.
        machine: Devices and links.
        space: Set of plans that is searched.
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
    hot = (
        []
        if space == "exact"
        else [
            Choice("row_wise", replicated_rows=rows)
            for rows in hot_rows(table)
            if can_divide_rows(table.rows - rows, count)
        ]
    )
    return [Choice("data_parallel"), *divided, *hot]


def hot_rows(table: TableDemand) -> list[int]:
    """Return candidate numbers of rows to replicate: the fewest rows with the lookup shares `HOT_SHARES`."""
    if table.rows < FEWEST_ROWS_HOT:
        return []
    found = []
    for share in HOT_SHARES:
        rows = next((int(rows) for rows, reached in table.in_order if reached >= share), table.rows)
        if rows <= MOST_HOT_ROWS * table.rows:
            found.append(rows)
    return sorted(set(found))


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
