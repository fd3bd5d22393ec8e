"""Adapter of a plan to TorchRec's planner, for any program with an EmbeddingBagCollection of the fields.

    planner = EmbeddingShardingPlanner(
        topology=topology,
        constraints=constraints_of(plan),
        proposer=PlanProposer(plan),
        partitioner=PlanPartitioner(plan),
    )

TorchRec then enumerates options and checks the plan, and its engine executes it. `shunter train` builds TorchRec's
plan without this adapter (`shunter.extensions.distributed.training.plan`).
"""

from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.types import (
    Enumerator,
    Partitioner,
    PlannerError,
    PlannerErrorType,
    Proposer,
    ShardingOption,
)

from shunter.errors import RequestError
from shunter.extensions.distributed.planning.plan import Plan, TablePlacement
from shunter.extensions.distributed.tables.sharding_types import BY_COLUMN


def constraints_of(plan: Plan) -> dict[str, ParameterConstraints]:
    """Return constraints that restrict TorchRec's enumerator to the plan's sharding of each table.

    Raises:
        RequestError: The plan replicates rows of a table, for which TorchRec has no kernel.
    """
    found = {}
    for name, table in plan.tables.items():
        if table.replicated_rows:
            raise RequestError(
                f"The plan replicates rows of table {name!r}, which TorchRec does not support: search "
                "with --space exact."
            )
        parts = 1  # blocks of columns, whose width TorchRec's enumerator needs
        if table.kind in BY_COLUMN:
            parts = len(table.devices) // (plan.devices_per_host if table.kind == "grid_shard" else 1)
        found[name] = ParameterConstraints(
            sharding_types=[table.kind],
            compute_kernels=["dense" if table.kind == "data_parallel" else "fused"],
            min_partition=table.width // parts,
        )
    return found


class PlanProposer(Proposer):
    """Proposer of a single plan.

    Args:
        plan: Result of `shunter plan`, or of `shunter.extensions.distributed.planning.plan.read_plan`.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._proposals: list[list[ShardingOption]] = []

    def load(self, search_space: list[ShardingOption], enumerator: Enumerator | None = None) -> None:
        """Find the given plan among TorchRec's options.

        Raises:
            PlannerError: A table is not in the plan, or its planned placement is not among the options.
        """
        chosen: dict[tuple[str, str], ShardingOption] = {}
        for option in search_space:
            table = self._plan.tables.get(option.name)
            if (
                table is not None
                and option.sharding_type == table.kind
                and len(option.shards) == len(_parts(self._plan, table))
            ):
                chosen.setdefault((option.path, option.name), option)
        for option in search_space:
            if (option.path, option.name) not in chosen:
                is_there = option.name in self._plan.tables
                told = "cannot be divided as the plan requires" if is_there else "is not in the plan"
                raise PlannerError(
                    error_type=PlannerErrorType.STRICT_CONSTRAINTS,
                    message=f"Table {option.name!r} {told}: make one for this model, and pass constraints_of(plan).",
                )
        self._proposals = [list(chosen.values())]

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """Ignore TorchRec's feedback, because there is only one proposal."""

    def propose(self) -> list[ShardingOption] | None:
        """Propose the plan at the first call, and nothing afterwards."""
        return self._proposals.pop() if self._proposals else None


class PlanPartitioner(Partitioner):
    """Partitioner that places each part by the plan.

    Args:
        plan: The plan that `PlanProposer` proposes.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def partition(self, proposal: list[ShardingOption], storage_constraint: Topology) -> list[ShardingOption]:
        """Set the rank of every part.

        Raises:
            PlannerError: TorchRec counts more bytes for a device than the topology gives it, or the topology has other
                devices than the plan.
        """
        if storage_constraint.world_size != len(self._plan.devices):
            raise PlannerError(
                error_type=PlannerErrorType.PARTITION,
                message=f"The plan is for {len(self._plan.devices)} devices, not {storage_constraint.world_size}.",
            )
        left = {device.rank: device.storage for device in storage_constraint.devices}
        for option in proposal:
            ranks = _parts(self._plan, self._plan.tables[option.name])
            for shard, rank in zip(option.shards, ranks, strict=True):
                assert shard.storage is not None, "TorchRec's enumerator estimates it"
                if not shard.storage.fits_in(left[rank]):
                    raise PlannerError(
                        error_type=PlannerErrorType.INSUFFICIENT_STORAGE,
                        message=f"By TorchRec's count table {option.name!r} does not fit into device {rank}.",
                    )
                left[rank] = left[rank] - shard.storage
                shard.rank = rank
        return proposal


def _parts(plan: Plan, table: TablePlacement) -> list[int]:
    """Return the device of each table shard in TorchRec's order: by block of columns, then by block of rows."""
    return list(table.devices) or list(range(len(plan.devices)))
