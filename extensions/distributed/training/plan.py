"""Division of the tables over the processes, by TorchRec's planner with measured figures of the machine."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from shunter.checked_json import json_object, read_or_quarantine, write_checked
from shunter.errors import InfeasibleError, RequestError
from shunter.extensions.distributed.tables.exchanged import ExchangedTable
from shunter.extensions.distributed.tables.sharding_types import (
    BY_ROW,
    EXACT_SHARDING_TYPES,
    Choice,
    CommunicationPrecision,
    ShardingType,
    can_divide_rows,
)
from shunter.extensions.distributed.tables.torchrec_tables import table_name

if TYPE_CHECKING:
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.distributed.types import ShardingPlan
    from torchrec.modules.embedding_modules import EmbeddingBagCollection


def given_plan(
    collection: "EmbeddingBagCollection",
    sharder: "EmbeddingBagCollectionSharder",
    tables: Sequence[Choice],
    device: torch.device,
    processes_per_node: int | None,
) -> "ShardingPlan":
    """Return placements of all tables of a collection as TorchRec's plan; the result is equal in every process.

    `processes_per_node` is None if all processes are on one node.

    Raises:
        RequestError: The plan is for another number of tables.
    """
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan
    from torchrec.distributed.types import ShardingPlan

    count = len(collection.embedding_bag_configs())
    if len(tables) != count:
        raise RequestError(
            f"The plan places {len(tables)} tables, but the model has {count}: make one with shunter plan."
        )
    per_node = processes_per_node or dist.get_world_size()
    module = construct_module_sharding_plan(
        collection,
        {table_name(number): _generator(table, per_node) for number, table in enumerate(tables)},
        sharder=sharder,  # pyright: ignore[reportArgumentType]
        local_size=per_node,
        world_size=dist.get_world_size(),
        device_type=device.type,
    )
    return ShardingPlan(plan={"": module})


def _generator(table: Choice, per_node: int) -> Any:
    """Return TorchRec's sharding generator; rows are updated in the backward pass, except in replicated tables."""
    from torchrec.distributed import sharding_plan as torchrec

    fused, processes = "fused", table.devices
    nodes = sorted({process // per_node for process in processes})
    made = {
        "data_parallel": torchrec.data_parallel,
        "table_wise": lambda: torchrec.table_wise(processes[0], compute_kernel=fused),
        "row_wise": lambda: torchrec.row_wise(compute_kernel=fused),
        "column_wise": lambda: torchrec.column_wise(list(processes), compute_kernel=fused),
        "table_column_wise": lambda: torchrec.column_wise(list(processes), compute_kernel=fused),
        "table_row_wise": lambda: torchrec.table_row_wise(nodes[0]),
        "grid_shard": lambda: partial(_grid, processes=processes, nodes=len(nodes)),
    }
    return made[table.kind]()


def _grid(
    param: torch.nn.Parameter,
    per_node: int,
    count: int,
    device_type: str,
    sharder: Any,
    *,
    processes: tuple[int, ...],
    nodes: int,
) -> Any:
    """Return a grid sharding with columns divided over nodes and rows within; TorchRec's own needs columns of 128."""
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharding_spec.api import EnumerableShardingSpec
    from torchrec.distributed.planner.utils import placement
    from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
    from torchrec.distributed.types import ParameterSharding

    sizes, offsets = calculate_shard_sizes_and_offsets(
        param, count, per_node, "grid_shard", col_wise_shard_dim=param.shape[1] // nodes
    )
    shards = [
        ShardMetadata(shard_sizes=size, shard_offsets=offset, placement=placement(device_type, process, per_node))
        for size, offset, process in zip(sizes, offsets, processes, strict=True)
    ]
    return ParameterSharding(
        sharding_spec=EnumerableShardingSpec(shards),
        sharding_type="grid_shard",
        compute_kernel="fused",
        ranks=list(processes),
    )


MILLISECONDS = 1e3
MACHINE = "machine.choice.json"
PROBE_FLOATS, PROBE_REPEATS = 1 << 18, 5
FEWEST_COLUMNS = 4  # FBGEMM's rows are multiples of four floats


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Memory and speeds of the machine for the planner; the plan, and rounding of results, depend on these values.

    Attributes:
        memory_bytes: Bytes of a process's share of the main memory, or of its GPU.
        memory_bytes_per_second: Bytes a second of a large copy, measured.
        link_bytes_per_second: Bytes per second from one process to another. With None the rate is measured when the
            plan is made, and varies slightly.
    """

    memory_bytes: int
    memory_bytes_per_second: float
    link_bytes_per_second: float | None = None


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """Options of dividing tables among processes.

    Attributes:
        types: Sharding types that the planner may use; by default those with the same result as a single process.
        precision: Precision in which pooled rows and their gradients travel between processes.
        processes_per_node: Number of processes on each node; None if all are on one node.
        given: Given placement of each table; the planner is then not used.
        shares_memory: Whether processes of one machine exchange pooled rows through shared memory; otherwise through
            sockets, as between machines.
    """

    machine: Machine
    types: tuple[ShardingType, ...] = EXACT_SHARDING_TYPES
    precision: CommunicationPrecision = "fp32"
    processes_per_node: int | None = None
    given: tuple[Choice, ...] | None = None
    shares_memory: bool = True

    def exchanged(self, rows: Sequence[int], processes: int) -> tuple[ExchangedTable, ...]:
        """Return the tables with rows replicated in every process; their other rows are exchanged one by one.

        Raises:
            RequestError: A table is divided such that a row has no single owner.
        """
        found = []
        for number, (one, size) in enumerate(zip(self.given or (), rows, strict=False)):
            if not one.replicated_rows:
                continue
            if one.kind not in ("table_wise", "row_wise"):
                raise RequestError(
                    f"The plan replicates rows of table {number}, which is {one.kind}: make the table "
                    "table_wise or row_wise."
                )
            owners = one.devices or tuple(range(processes))
            found.append(ExchangedTable(number=number, rows=size, replicated_rows=one.replicated_rows, owners=owners))
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Division:
    """Placement of tables that is fixed before a training run, independent of its machines.

    Attributes:
        tables: Placement of each table; None leaves it to the planner of the group.
        precision: Precision in which pooled rows and their gradients travel between processes.
    """

    tables: tuple[Choice, ...] | None = None
    precision: CommunicationPrecision = "fp32"


def make_plan(
    collection: "EmbeddingBagCollection",
    sharder: "EmbeddingBagCollectionSharder",
    sharding: Sharding,
    device: torch.device,
    *,
    batch_size: int,
    ids_per_sample: Sequence[float],
) -> "ShardingPlan":
    """Return the given plan, or the plan of TorchRec's planner; called by every process.

    A table with fewer rows than processes is not divided by row. If no other type is allowed, it is replicated.

    Args:
        collection: the tables, on the meta device; without tables whose rows are exchanged one by one.
        sharder: TorchRec's sharder, which defines the possible types.
        sharding: Allowed ways of dividing the tables.
        device: Device of this process.
        batch_size: Samples of each process per step.
        ids_per_sample: mean number of ids in each bag of a sample, the bags of a table next to each other.

    Raises:
        InfeasibleError: no allowed plan fits into memory.
    """
    from torchrec.distributed.planner.types import PlannerError

    if sharding.given is not None:
        tables = [one for one in sharding.given if not one.replicated_rows]
        return given_plan(collection, sharder, tables, device, sharding.processes_per_node)
    processes = dist.get_world_size()
    bag_ids = iter(ids_per_sample)
    limits = [
        (
            allowed_types(sharding.types, config.num_embeddings, processes),
            [max(next(bag_ids), 1.0) for _ in config.feature_names],
        )
        for config in collection.embedding_bag_configs()
    ]
    planner = planner_of(build_topology(sharding, device, processes), limits, batch_size)
    group = dist.group.WORLD
    assert group is not None, "the process group has been made"
    try:
        return planner.collective_plan(collection, [sharder], group)  # pyright: ignore[reportArgumentType]
    except PlannerError as error:
        reason = " ".join(str(error).split())
        raise InfeasibleError(
            f"The embedding tables cannot be sharded over {processes} processes ({reason}): use more "
            "memory, another number of processes, or other sharding types."
        ) from error


def allowed_types(types: Sequence[ShardingType], rows: int, processes: int) -> tuple[ShardingType, ...]:
    """Return the sharding types that give every process at least one row of its blocks."""
    if can_divide_rows(rows, processes):
        return tuple(types)
    return tuple(kind for kind in types if kind not in BY_ROW) or ("data_parallel",)


def planner_of(
    topology: "Topology", tables: Sequence[tuple[Sequence[ShardingType], Sequence[float]]], batch_size: int
) -> "EmbeddingShardingPlanner":
    """Return TorchRec's planner for tables with these allowed types and mean numbers of ids in each bag."""
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints

    constraints = {
        table_name(table): ParameterConstraints(
            sharding_types=list(types), min_partition=FEWEST_COLUMNS, pooling_factors=list(ids)
        )
        for table, (types, ids) in enumerate(tables)
    }
    return EmbeddingShardingPlanner(topology=topology, batch_size=batch_size, constraints=constraints, debug=False)


def build_topology(sharding: Sharding, device: torch.device, processes: int) -> "Topology":
    """Return TorchRec's description of the machine."""
    machine = sharding.machine
    link = machine.link_bytes_per_second or measure_link(device)
    per_node, rate = sharding.processes_per_node or processes, machine.memory_bytes_per_second
    return topology_of(
        processes, per_node, device.type, machine.memory_bytes, memory_rate=rate, within=link, across=link
    )


def topology_of(
    processes: int, per_node: int, device: str, memory_bytes: int, *, memory_rate: float, within: float, across: float
) -> "Topology":
    """Return TorchRec's description of a machine, whose rates are in bytes per millisecond, from bytes per second."""
    from torchrec.distributed.planner import Topology

    return Topology(
        world_size=processes,
        local_world_size=per_node,
        compute_device=device,
        hbm_cap=memory_bytes if device == "cuda" else 0,
        ddr_cap=memory_bytes,
        hbm_mem_bw=memory_rate / MILLISECONDS,
        ddr_mem_bw=memory_rate / MILLISECONDS,
        intra_host_bw=within / MILLISECONDS,
        inter_host_bw=across / MILLISECONDS,
    )


def with_stored_machine(sharding: Sharding, device: torch.device, directory: Path) -> Sharding:
    """Return the sharding with the machine's measurement from the start of the training in `directory`.

    The measurement is kept while the training is resumed with the same number of processes.
    """
    if sharding.given is not None:
        return sharding
    path, processes = directory / MACHINE, dist.get_world_size()
    kept: list[Any] = [read_or_quarantine(path, json_object) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(kept, src=0)
    found = kept[0]
    if found is None or found["processes"] != processes:
        machine = sharding.machine
        link = machine.link_bytes_per_second or measure_link(device)
        found = {"processes": processes, **asdict(machine), "link_bytes_per_second": link}
        if dist.get_rank() == 0:
            write_checked(path, json.dumps(found))
    del found["processes"]
    return replace(sharding, machine=Machine(**found))


def measure_link(device: torch.device) -> float:
    """Measure the bytes per second that the fastest process sends in an all-to-all."""
    processes = dist.get_world_size()
    sent = torch.zeros(PROBE_FLOATS // processes * processes, device=device)
    received = torch.empty_like(sent)
    shortest = math.inf
    for _ in range(PROBE_REPEATS):
        started = time.perf_counter()
        dist.all_to_all_single(received, sent)
        received[0].item()  # waits for a GPU
        shortest = min(shortest, time.perf_counter() - started)
    seconds = torch.tensor([shortest], dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MIN)  # all must calculate with the same
    return sent.numel() * sent.element_size() / float(seconds)
