"""Given plan of a training job, converted to TorchRec's sharding plan."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed as dist

from shunter.errors import RequestError
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.extensions.distributed.tables.torchrec_tables import table_name

if TYPE_CHECKING:
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.types import ShardingPlan
    from torchrec.modules.embedding_modules import EmbeddingBagCollection


def given_plan(
    collection: "EmbeddingBagCollection",
    sharder: "EmbeddingBagCollectionSharder",
    tables: Sequence[Choice],
    device: torch.device,
    processes_per_node: int | None,
) -> "ShardingPlan":
    """Return the plan for TorchRec; it is the same in every process.

    Args:
        collection: The tables, on the meta device.
        sharder: Sharder.
        tables: Placement of each of the collection's tables, in their order.
        device: Device of this process.
        processes_per_node: None is all of them, on one node.

    Raises:
        RequestError: The plan is for another number of tables.
    """
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan
    from torchrec.distributed.types import ShardingPlan

    count = len(collection.embedding_bag_configs())
    if len(tables) != count:
        raise RequestError(
            f"The plan places {len(tables)} tables and the model has {count}: make one with shunter plan."
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
