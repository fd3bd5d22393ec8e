"""Nodes: fewer with more memory, none that break a limit, and what is wrong with a file of servers."""

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from shunter.errors import RequestError
from shunter.extensions.tiers.memory.compare import MISSES, RATES, compare_servers
from shunter.extensions.tiers.memory.demand import TableDemand, segments_of
from shunter.extensions.tiers.memory.nodes import TrainingDemand, fewest_nodes, plan_for
from shunter.extensions.tiers.memory.servers import SHIPPED, read_servers

CURVE = [(1e-6, 0.1), (1e-4, 0.3), (1e-2, 0.6), (0.1, 0.8), (1.0, 1.0)]
ROWS = 2.5e9  # with 129 numbers of four bytes 1.29 TB a table
TABLES = tuple(TableDemand(f"t{place}", ROWS, 128, 2 + place % 5, segments_of(CURVE, ROWS)) for place in range(8))
ASK = TrainingDemand(TABLES, 1e7, 65_536, 20_000)


def test_servers_with_more_memory_need_fewer_nodes() -> None:
    found = compare_servers(read_servers(), ASK)
    nodes = {name: plan.nodes for name, plan in found.plans.items() if plan is not None}
    assert nodes["hbm_dram"] == 8  # 10.3 TB on nodes of 1.46
    assert nodes["hbm_dram_bya_bla"] < nodes["hbm_dram_bya"] < nodes["hbm_dram"]
    for name, plan in found.plans.items():
        assert plan is not None
        assert plan.samples_per_second >= ASK.samples_per_second
        assert set(plan.places.values()) <= set(read_servers()[name].tiers)
        nodes_of = {(one.samples_per_second, one.miss_factor): one.nodes[name] for one in found.around}
        assert nodes_of[20_000, 1.0] == plan.nodes
        for others in (MISSES, RATES):  # more of either needs no fewer nodes
            places = [(20_000, one) if others is MISSES else (20_000 * one, 1.0) for one in others]
            needed = [one if (one := nodes_of[place]) is not None else inf for place in places]
            assert needed == sorted(needed)


def test_one_node_fewer_does_not_hold() -> None:
    for server in read_servers().values():
        plan = fewest_nodes(server, ASK)
        assert plan is not None
        assert plan.nodes == 1 or plan_for(server, ASK, plan.nodes - 1) is None


def test_a_higher_rate_needs_no_fewer_nodes() -> None:
    server = read_servers()["hbm_dram_bla_nand"]
    found = [fewest_nodes(server, replace(ASK, samples_per_second=rate)) for rate in (1e3, 1e5, 1e6, 1e7)]
    nodes = [plan.nodes for plan in found if plan is not None]
    assert nodes == sorted(nodes)


def test_a_tier_that_would_wear_out_is_not_planned() -> None:
    server = read_servers()["hbm_dram_bla_nand"]
    block = server.tiers["bla"]
    worn = server.model_copy(
        update={"tiers": {**server.tiers, "bla": block.model_copy(update={"writes_per_day": 1e-9})}}
    )
    lasting, wearing = fewest_nodes(server, ASK), fewest_nodes(worn, ASK)
    assert lasting is not None
    assert wearing is not None
    assert lasting.miss_rate > 0 == wearing.miss_rate
    assert wearing.nodes > lasting.nodes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("servers: {}", "is invalid"),
        (SHIPPED.read_text().replace("watts: 4200", "watts: -1"), "is invalid \\(servers.hbm_dram.watts"),
        ("servers: [1]", "is invalid"),
        ("- a", "file of servers"),
    ],
)
def test_a_wrong_file_of_servers_is_one_sentence(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text(text)
    with pytest.raises(RequestError, match=expected):
        read_servers(tmp_path / "servers.yaml")


def test_a_tier_that_is_read_by_block_is_the_last(tmp_path: Path) -> None:
    tier = "{capacity_bytes: 1, read_bytes_per_second: 1, write_bytes_per_second: 1, granule_bytes: 1"
    server = f"{{flops_per_second: 1, watts: 1, price_per_hour: 1, tiers: {{x: {tier}, reads_per_second: 1}}}}}}"
    text = f"servers: {{a: {server}}}"
    (tmp_path / "servers.yaml").write_text(text)
    with pytest.raises(RequestError, match="must be last"):
        read_servers(tmp_path / "servers.yaml")
