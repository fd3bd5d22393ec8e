"""Plan of TorchRec's own planner for the same devices, links, tables and allowed kinds."""

import logging
import warnings
from importlib.util import find_spec
from typing import Any

from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.options import Space
from shunter.extensions.distributed.tables.sharding_types import (
    BY_COLUMN,
    BY_ROW,
    EXACT_SHARDING_TYPES,
    OF_HOSTS,
    Choice,
    ShardingType,
    can_divide_rows,
)
from shunter.extensions.distributed.tables.torchrec_tables import build_sharder, table_collection, table_name
from shunter.extensions.distributed.training.plan import planner_of, topology_of


def torchrec_choices(costs: TableCosts, space: Space = "exact") -> list[Choice] | None:
    """Return TorchRec's plan for the tables of a model on a machine; None if not installed, or if no plan fits."""
    if find_spec("torchrec") is None:
        return None
    from torchrec.distributed.planner.types import PlannerError

    machine, demand = costs.machine, costs.demand
    count, per_host = len(machine.devices), machine.per_host
    slowest = min(machine.devices, key=lambda device: device.profile.copy_bytes_per_second.value * device.share)
    on_cpu = slowest.profile.accelerator.kind == "cpu"
    rate = slowest.profile.copy_bytes_per_second.value * min(1.0, 2 * slowest.share)
    memory = min(device.memory_bytes for device in machine.devices)
    within = machine.within["all_to_all"].bytes_per_second
    across = within if machine.across is None else machine.across.bytes_per_second / per_host
    table_of = [place for place, table in enumerate(demand.tables) for _ in range(table.bags)]
    collection = table_collection(
        [table.rows for table in demand.tables], [table.width for table in demand.tables], 0.1, table_of
    )
    kinds = EXACT_SHARDING_TYPES if space == "exact" else (*EXACT_SHARDING_TYPES, *BY_COLUMN)
    allowed: list[ShardingType] = [kind for kind in kinds if machine.hosts > 1 or kind not in OF_HOSTS]
    limits: list[tuple[list[ShardingType], list[float]]] = [
        (
            [kind for kind in allowed if kind not in BY_ROW or can_divide_rows(table.rows, count)],
            [max(table.ids_per_sample / table.bags, 1e-3)] * table.bags,
        )
        for table in demand.tables
    ]
    device = "cpu" if on_cpu else "cuda"
    topology = topology_of(count, per_host, device, memory, memory_rate=rate, within=within, across=across)
    planner = planner_of(topology, limits, max(1, round(costs.batch_size / count)))
    logging.getLogger("torchrec").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = planner.plan(collection, [build_sharder()])  # pyright: ignore[reportArgumentType]
    except PlannerError:
        return None
    module: Any
    (module,) = plan.plan.values()
    return [_choice(module[table_name(table)], per_host) for table in range(len(demand.tables))]


def _choice(sharding: Any, per_host: int) -> Choice:
    kind, ranks = sharding.sharding_type, tuple(sharding.ranks or ())
    if kind in ("data_parallel", "row_wise"):
        return Choice(kind)
    if kind in ("table_row_wise", "grid_shard"):
        return Choice(kind, tuple(sorted(set(ranks))))
    if kind in ("column_wise", "table_column_wise") and len(ranks) == 1:
        return Choice("table_wise", ranks)
    if kind == "table_column_wise" and len(ranks) != per_host:  # on a part of a host
        return Choice("column_wise", ranks)
    return Choice(kind, ranks)
