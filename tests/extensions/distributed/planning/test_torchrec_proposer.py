"""TorchRec's planner makes of a plan what `shunter.extensions.distributed.training.plan` makes of it."""

from typing import Any

import pytest
import torch

from shunter.errors import RequestError
from shunter.extensions.distributed.planning.plan import Plan, TablePlacement
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.extensions.distributed.tables.torchrec_tables import build_sharder, table_collection, table_name
from shunter.extensions.distributed.training.plan import given_plan

pytest.importorskip("torchrec")
WIDTH, PER_HOST = 16, 2
PLACED = (
    TablePlacement(rows=40, width=WIDTH, kind="data_parallel"),
    TablePlacement(rows=50, width=WIDTH, kind="table_wise", devices=(3,)),
    TablePlacement(rows=61, width=WIDTH, kind="row_wise"),
    TablePlacement(rows=70, width=WIDTH, kind="column_wise", devices=(2, 0)),
    TablePlacement(rows=80, width=WIDTH, kind="table_row_wise", devices=(2, 3)),
    TablePlacement(rows=90, width=WIDTH, kind="table_column_wise", devices=(0, 1)),
    TablePlacement(rows=99, width=WIDTH, kind="grid_shard", devices=(0, 1, 2, 3)),
)


def plan_of(*tables: TablePlacement) -> Plan:
    return Plan(
        model="dlrm",
        data="made",
        fingerprint="f",
        batch_size=64,
        devices=tuple(f"cpu.{number}" for number in range(4)),
        devices_per_host=PER_HOST,
        tables={table_name(number): table for number, table in enumerate(tables)},
    )


def planned(plan: Plan, *, memory: int = 2**30, collection: Any = None) -> Any:
    """What TorchRec's planner returns for one module."""
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation

    from shunter.extensions.distributed.planning.torchrec_proposer import PlanPartitioner, PlanProposer, constraints_of

    count = len(plan.devices)
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=count, local_world_size=PER_HOST, compute_device="cpu", ddr_cap=memory),
        constraints=constraints_of(plan),
        proposer=PlanProposer(plan),
        partitioner=PlanPartitioner(plan),
        storage_reservation=FixedPercentageStorageReservation(0.0),
        debug=False,
    )
    tables = collection or collection_of(plan)
    (module,) = planner.plan(tables, [build_sharder()]).plan.values()  # type: ignore[list-item]
    return module


def collection_of(plan: Plan) -> Any:
    return table_collection([table.rows for table in plan.tables.values()], [WIDTH] * len(plan.tables), 0.1)


def described(sharding: Any) -> tuple[Any, ...]:
    spec = sharding.sharding_spec
    shards = () if spec is None else [(one.shard_offsets, one.shard_sizes, str(one.placement)) for one in spec.shards]
    # Columns within one host are executed as columns on the devices of that host.
    kind = sharding.sharding_type.replace("table_column_wise", "column_wise")
    return kind, sharding.compute_kernel, sharding.ranks, list(shards)


def test_torchrec_s_planner_comes_to_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(*PLACED)
    monkeypatch.setattr("shunter.extensions.distributed.training.plan.dist.get_world_size", lambda: len(plan.devices))
    given = [Choice(table.kind, table.devices) for table in PLACED]
    sharder = build_sharder()
    expected: Any = given_plan(collection_of(plan), sharder, given, torch.device("cpu"), PER_HOST).plan[""]
    found = planned(plan)
    for name in plan.tables:
        assert described(found[name]) == described(expected[name]), name


def test_what_torchrec_cannot_do_or_hold_is_refused_by_its_name() -> None:
    from torchrec.distributed.planner.types import PlannerError

    with pytest.raises(RequestError, match="'table0'"):
        planned(plan_of(TablePlacement(rows=40, width=WIDTH, kind="row_wise", replicated_rows=3)))
    with pytest.raises(PlannerError, match=r"table 'table0' does not fit into device 3|[Ss]torage"):
        planned(plan_of(TablePlacement(rows=40_000, width=WIDTH, kind="table_wise", devices=(3,))), memory=2**20)
    plan = plan_of(PLACED[1])
    with pytest.raises(PlannerError, match="'table1'"):
        planned(plan, collection=table_collection([50, 60], [WIDTH] * 2, 0.1))
