"""The transform is the flat exchange bit by bit, sends what its formulas say, and learns as one process does."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributed as dist

from shunter.errors import RequestError
from shunter.extensions.distributed.training.hosts import Hosts, Link, Phase, Traffic
from shunter.extensions.towers.dmt import Towers
from shunter.extensions.towers.sptt import TowerEmbeddings, TowerLayout
from shunter.models.embeddings.role import EPSILON
from shunter.models.embeddings.torch_kernel import TorchEmbeddings
from tests.extensions.distributed.training.ranks import run
from tests.extensions.towers.flat_exchange import lookup_flat

BATCH, DIM, RATE = 3, 4, 0.1
ROWS = (5, 9, 7, 6, 8, 10, 4)
CPU = torch.device("cpu")
# Hosts, processes of each, and the fields of each host: not in order, of different number, and one process with none.
SHAPES: dict[str, tuple[int, Towers]] = {
    "2 x 2": (2, ((5, 0, 3), (2, 6, 1, 4))),
    "4 x 1": (1, ((1,), (4, 0), (6, 2, 3), (5,))),
    "1 x 4": (4, ((0, 1, 2, 3, 4, 5, 6),)),
    "2 x 2, a process without tables": (2, ((3,), (2, 6, 0, 5, 1, 4))),
}
EVEN = {"2 x 2": (2, ((4, 1, 0, 5), (2, 6, 3, 7))), "4 x 1": (1, ((0, 1), (2, 3), (4, 5), (6, 7)))}


def ids_of(rank: int, rows: tuple[int, ...] = ROWS) -> tuple[Tensor, Tensor]:
    """A jagged batch of one process: bags of 0 to 3 ids."""
    generator = torch.Generator().manual_seed(rank)
    lengths = torch.randint(0, 4, (len(rows), BATCH), generator=generator)
    values = [torch.randint(0, r, (int(n.sum()),), generator=generator) for r, n in zip(rows, lengths, strict=True)]
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.flatten().cumsum(0)])
    return torch.cat(values).int(), offsets.int()


def gradient_of(rank: int) -> Tensor:
    return torch.randn(BATCH, len(ROWS), DIM, generator=torch.Generator().manual_seed(100 + rank))


def build(hosts: Hosts, fields: Towers, rows: tuple[int, ...] = ROWS) -> TowerEmbeddings:
    layout = TowerLayout.divide(fields, hosts.processes_per_host, rows)
    tables = TowerEmbeddings(rows, DIM, learning_rate=RATE, device=CPU, hosts=hosts, layout=layout, kernel="torch")
    tables.initialise(torch.Generator().manual_seed(3))
    return tables


def one_step(hosts: Hosts, fields: Towers, *, flat: bool) -> dict[str, Any]:
    """Look up, learn once, and tell what came of it; fresh tables see the same ids again."""
    tables = build(hosts, fields)
    lookup = partial(lookup_flat, tables) if flat else tables
    output = lookup(*ids_of(hosts.rank))
    output.backward(gradient_of(hosts.rank))
    with torch.no_grad():
        again = lookup(*ids_of(hosts.rank))
    return {"output": output.detach(), "again": again, "shards": list(tables.shards())}


def traffic_of(hosts: Hosts, fields: Towers, *, flat: bool, compressed_to: int | None = None) -> Traffic:
    """What one lookup and its gradient send; the towers give `compressed_to` vectors of each sample."""
    hosts.traffic.sent_bytes.clear()
    hosts.traffic.messages.clear()
    rows = (6,) * 8
    tables = build(hosts, fields, rows)
    ids = ids_of(hosts.rank, rows)
    if flat:
        lookup_flat(tables, *ids).sum().backward()
    elif compressed_to is None:
        tables(*ids).sum().backward()
    else:
        tower = tables.to_towers(*ids)
        tables.to_samples(tower[:, :compressed_to], [compressed_to] * len(fields)).sum().backward()
    return Traffic(hosts.traffic.sent_bytes.copy(), hosts.traffic.messages.copy())


def everything() -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    hosts_of = {size: Hosts(size) for size in (1, 2, 4)}
    for name, (size, fields) in SHAPES.items():
        found[name] = {flat: one_step(hosts_of[size], fields, flat=flat) for flat in (True, False)}
    for name, (size, fields) in EVEN.items():
        found["traffic", name] = {
            "flat": traffic_of(hosts_of[size], fields, flat=True),
            "sptt": traffic_of(hosts_of[size], fields, flat=False),
            "towers": traffic_of(hosts_of[size], fields, flat=False, compressed_to=1),
        }
    try:
        Hosts(3)
    except RequestError as error:
        found["error"] = str(error)
    return found


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return run(4, tmp_path_factory.mktemp("group"), everything)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_transform_is_the_flat_exchange_bit_by_bit(group: list[Any], shape: str) -> None:
    for results in group:
        flat, transformed = results[shape][True], results[shape][False]
        assert torch.equal(transformed["output"], flat["output"])
        assert torch.equal(transformed["again"], flat["again"])
        assert not torch.equal(flat["again"], flat["output"]), "nothing was learned"
        for one, other in zip(transformed["shards"], flat["shards"], strict=True):
            assert one.table == other.table
            assert torch.equal(one.weight, other.weight)
            assert torch.equal(one.adagrad_sum, other.adagrad_sum)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_lookup_is_that_of_whole_tables_in_the_order_of_the_data(group: list[Any], shape: str) -> None:
    whole = TorchEmbeddings(ROWS, DIM, RATE, CPU)
    whole.initialise(torch.Generator().manual_seed(3))
    for rank, results in enumerate(group):
        assert torch.equal(results[shape][False]["output"], whole(*ids_of(rank)).detach())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_is_that_of_one_process_with_the_whole_batch(group: list[Any], shape: str) -> None:
    gradients = [torch.zeros(rows, DIM) for rows in ROWS]
    for rank in range(4):
        values, offsets = ids_of(rank)
        for bag, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
            field, sample = divmod(bag, BATCH)
            for row in values[start:end].tolist():
                gradients[field][row] += gradient_of(rank)[sample, field] / 4
    before = TorchEmbeddings(ROWS, DIM, RATE, CPU)
    before.initialise(torch.Generator().manual_seed(3))
    weights, seen = before.weight.split(ROWS), []
    for results in group:
        for shard in results[shape][False]["shards"]:
            gradient = gradients[shard.table]
            sums = gradient.square().mean(1)
            torch.testing.assert_close(shard.adagrad_sum, sums)
            expected = weights[shard.table] - RATE * gradient / (sums.sqrt() + EPSILON).unsqueeze(1)
            torch.testing.assert_close(shard.weight, expected)
            seen.append(shard.table)
    assert sorted(seen) == list(range(len(ROWS)))


@pytest.mark.parametrize("shape", EVEN)
def test_bytes_and_messages_of_each_link_are_those_of_the_formulas(group: list[Any], shape: str) -> None:
    per_host, fields = EVEN[shape]
    hosts, processes = len(fields), 4
    embeddings = BATCH * 8 * DIM * 4  # E, of 8 fields in float32
    per_tower = embeddings // hosts  # what a host has of the own samples, uncompressed
    for results in group:
        for phase in ("forward", "backward"):
            flat, sptt, towers = (sent(results["traffic", shape][kind], phase) for kind in ("flat", "sptt", "towers"))
            crossing = embeddings * (hosts - 1) // hosts
            within = embeddings * (per_host - 1)
            assert flat["cross"] == (crossing, processes - per_host)
            assert flat["intra"] == (within // processes, per_host - 1)
            assert sptt["cross"] == (crossing, hosts - 1)
            assert sptt["intra"] == (within // per_host, per_host - 1)
            compression = len(fields[0])  # all fields of a host to one vector
            assert towers["cross"] == (crossing // compression, hosts - 1)
            assert towers["intra"] == sptt["intra"]
            assert per_tower % compression == 0
    ids = [results["traffic", shape]["sptt"].sent_bytes["ids", "cross"] for results in group]
    assert all(ids)


def sent(traffic: Traffic, phase: Phase) -> dict[Link, tuple[int, int]]:
    """Bytes and messages over each link."""
    links: tuple[Link, ...] = ("intra", "cross")
    return {link: (traffic.sent_bytes[phase, link], traffic.messages[phase, link]) for link in links}


def test_rows_are_divided_evenly_among_the_processes_of_a_host() -> None:
    layout = TowerLayout.divide(((0, 1, 2, 3), (4, 5, 6)), 2, (50, 90, 70, 60, 10, 10, 100))
    assert layout.owned == ((0, 1), (2, 3), (6,), (4, 5))


def test_processes_that_cannot_be_divided_into_hosts_are_refused(group: list[Any]) -> None:
    assert all("4 processes cannot be divided into hosts of 3 each" in results["error"] for results in group)
    assert not dist.is_initialized()
