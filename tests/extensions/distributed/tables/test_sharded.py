"""Divided tables look up and learn as whole ones, under every sharding type."""

import os
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.functional import embedding_bag

from shunter.extensions.distributed.tables.sharded import ShardedEmbeddings
from shunter.extensions.distributed.tables.sharding_types import EXACT_SHARDING_TYPES, SHARDING_TYPES
from shunter.extensions.distributed.tables.torchrec_tables import TorchRecTables
from shunter.extensions.distributed.training.plan import Machine, Sharding, allowed_types, build_topology, make_plan
from shunter.models.embeddings.role import EPSILON
from shunter.models.embeddings.torch_kernel import TorchEmbeddings
from shunter.models.spec import TableShape
from tests.extensions.distributed.training.ranks import MACHINE, run, types_of

pytest.importorskip("torchrec")
ROWS, DIM, BATCH, RATE = (50, 9, 2, 20), 8, 6, 0.1
CPU = torch.device("cpu")
PROCESSES_PER_NODE = 2
# Largest relative error of a number rounded once; a bag of rows in n processes is a sum of n rounded parts.
ROUNDING_ERROR = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8}
SHARED = ("data_parallel", "table_wise", "row_wise", "column_wise")  # not those that are divided within hosts


def ids_of(rank: int) -> tuple[Tensor, Tensor]:
    """A jagged batch of one process: bags of 0 to 3 ids."""
    generator = torch.Generator().manual_seed(rank)
    lengths = torch.randint(0, 4, (len(ROWS), BATCH), generator=generator)
    values = [torch.randint(0, r, (int(n.sum()),), generator=generator) for r, n in zip(ROWS, lengths, strict=True)]
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.flatten().cumsum(0)])
    return torch.cat(values).int(), offsets.int()


def gradient_of(rank: int) -> Tensor:
    return torch.randn(BATCH, len(ROWS), DIM, generator=torch.Generator().manual_seed(100 + rank))


def build(kind: str, precision: str) -> ShardedEmbeddings:
    sharding = Sharding(machine=MACHINE, types=(kind,), processes_per_node=PROCESSES_PER_NODE)  # type: ignore[arg-type]
    tables = ShardedEmbeddings(
        [TableShape(ids=rows, rows=rows, width=DIM) for rows in ROWS],
        DIM,
        learning_rate=RATE,
        device=CPU,
        make_plan=lambda collection, sharder: make_plan(
            collection, sharder, sharding, CPU, batch_size=BATCH, ids_per_sample=[1.5] * len(ROWS)
        ),
        precision=precision,  # type: ignore[arg-type]
    )
    tables.initialise(torch.Generator().manual_seed(3))
    return tables


def one_step(kind: str, precision: str) -> dict[str, Any]:
    """Look up, learn once, and tell what came of it."""
    tables = build(kind, precision)
    output = tables(*ids_of(dist.get_rank()))
    output.backward(gradient_of(dist.get_rank()))
    tables.after_backward()
    return {"output": output.detach(), "shards": list(tables.shards()), "types": types_of(tables)}


def every_step() -> dict[tuple[str, str], Any]:
    os.environ["LOCAL_WORLD_SIZE"] = str(PROCESSES_PER_NODE)  # four processes are two nodes
    found = {(kind, precision): one_step(kind, precision) for kind in SHARDING_TYPES for precision in ROUNDING_ERROR}
    found["ahead", ""] = steps_ahead()
    return found | {(kind, way): some_steps(kind, way) for kind in SHARED for way in ("memory", "sockets")}


def some_steps(kind: str, way: str) -> dict[str, Any]:
    """Learn from batches that grow, and score between, through shared memory or as TorchRec sends vectors."""
    tables = build(kind, "fp32")
    ((_, part),) = tables._parts
    assert isinstance(part, TorchRecTables)
    assert part.shared is not None
    if way == "sockets":
        part.shared = None
    outputs = []
    for size in (1, 1, 3):
        values, offsets = many_ids_of(dist.get_rank(), size * BATCH)
        with torch.no_grad():
            outputs += [tables(values, offsets).clone() for _ in range(3)]
        output = tables(values, offsets)
        output.backward(gradient_of(dist.get_rank()).repeat(size, 1, 1))
        tables.after_backward()
    return {"outputs": outputs, "shards": list(tables.shards())}


def steps_ahead() -> dict[str, Any]:
    """Learn from batches whose ids travel beside the step before, and from the same without."""
    found: dict[str, Any] = {}
    batches = [many_ids_of(2 * number + dist.get_rank(), BATCH) for number in range(4)]
    for way in ("ahead", "alone"):
        tables = build("table_wise", "fp32")
        ((_, part),) = tables._parts
        assert isinstance(part, TorchRecTables)
        sent, begin = [], part.start_sending
        part.start_sending = lambda *ids, begin=begin, sent=sent: (sent.append(ids), begin(*ids))[1]  # type: ignore[method-assign]
        was_sent = []
        for number, (values, offsets) in enumerate(batches):
            if way == "ahead" and number + 1 < len(batches):
                tables.send_ahead(*batches[number + 1])
            before = len(sent)
            output = tables(values, offsets)
            was_sent.append(len(sent) == before)
            tables.continue_sending()
            output.backward(gradient_of(dist.get_rank()))
            if number == 1:  # as a validation between two steps
                with torch.no_grad():
                    tables(*batches[0])
        found[way] = was_sent, list(tables.shards())
    return found


def many_ids_of(rank: int, batch: int) -> tuple[Tensor, Tensor]:
    """Two ids in each bag."""
    generator = torch.Generator().manual_seed(10 + rank)
    values = torch.cat([torch.randint(0, rows, (2 * batch,), generator=generator) for rows in ROWS])
    return values.int(), 2 * torch.arange(len(ROWS) * batch + 1, dtype=torch.int32)


def whole() -> TorchEmbeddings:
    tables = TorchEmbeddings(ROWS, DIM, RATE, CPU)
    tables.initialise(torch.Generator().manual_seed(3))
    return tables


@pytest.fixture(scope="module", params=[2, 4])
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("group")
    return run(request.param, folder, every_step)


@pytest.mark.parametrize("precision", ROUNDING_ERROR)
@pytest.mark.parametrize("kind", SHARDING_TYPES)
def test_a_lookup_is_that_of_whole_tables_within_the_stated_error(group: list[Any], kind: str, precision: str) -> None:
    tables = whole()
    magnitudes = whole()
    magnitudes.weight.abs_()
    bound = ROUNDING_ERROR[precision] * len(group)
    largest = 0.0
    for rank, results in enumerate(group):
        expected = tables(*ids_of(rank)).detach()
        error = (results[kind, precision]["output"] - expected).abs()
        assert (error <= bound * magnitudes(*ids_of(rank)).detach() + 1e-6).all()
        largest = max(largest, float(error.max()))
    if precision != "fp32" and kind != "data_parallel":
        assert largest > 2e-6, "nothing was rounded, so nothing was sent in reduced precision"


@pytest.mark.parametrize("kind", SHARDING_TYPES)
def test_a_step_is_exact_row_wise_adagrad_on_each_block(group: list[Any], kind: str) -> None:
    before = whole().weight.split(ROWS)
    gradients = mean_gradients(len(group))
    seen = 0
    for results in group:
        for shard in results[kind, "fp32"]["shards"]:
            rows = slice(shard.first_row, shard.first_row + len(shard.weight))
            columns = slice(shard.first_column, shard.first_column + shard.weight.shape[1])
            gradient = gradients[shard.table][rows, columns]
            sums = gradient.square().mean(1)
            expected = before[shard.table][rows, columns] - RATE * gradient / (sums.sqrt() + EPSILON).unsqueeze(1)
            torch.testing.assert_close(shard.adagrad_sum, sums, rtol=1e-4, atol=1e-9)
            torch.testing.assert_close(shard.weight, expected, rtol=1e-4, atol=1e-5)
            seen += shard.weight.numel() / (len(group) if shard.replicated else 1)
    assert seen == sum(ROWS) * DIM


@pytest.mark.parametrize("kind", SHARED)
def test_vectors_through_shared_memory_are_those_through_sockets(group: list[Any], kind: str) -> None:
    """To the last bit, where no sum over more than two processes is added up in an order of its own."""
    tolerance = 1e-6 if kind == "row_wise" and len(group) > 2 else 0.0
    for results in group:
        found, expected = results[kind, "memory"], results[kind, "sockets"]
        pairs = list(zip(found["outputs"], expected["outputs"], strict=True))
        for one, other in zip(found["shards"], expected["shards"], strict=True):
            pairs += [(one.weight, other.weight), (one.adagrad_sum, other.adagrad_sum)]
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_ids_that_travel_ahead_are_sent_once_and_change_nothing(group: list[Any]) -> None:
    for results in group:
        (ahead, shards), (alone, expected) = (results["ahead", ""][way] for way in ("ahead", "alone"))
        assert (ahead, alone) == ([False, True, True, True], [False] * 4)
        for one, other in zip(shards, expected, strict=True):
            assert torch.equal(one.weight, other.weight)
            assert torch.equal(one.adagrad_sum, other.adagrad_sum)


def mean_gradients(ranks: int) -> list[Tensor]:
    """Of each table, averaged over the processes, by autograd on whole tables."""
    weights = [table.clone().requires_grad_() for table in whole().weight.split(ROWS)]
    total = torch.zeros(())
    for rank in range(ranks):
        values, offsets = ids_of(rank)
        bounds = offsets.view(-1)
        for table, weight in enumerate(weights):
            own = bounds[table * BATCH : (table + 1) * BATCH + 1]
            ids = values[own[0] : own[-1]].long()
            pooled = embedding_bag(ids, weight, (own - own[0]).long(), mode="sum", include_last_offset=True)
            total = total + (pooled * gradient_of(rank)[:, table]).sum() / ranks
    total.backward()
    gradients = [weight.grad for weight in weights]
    return [gradient for gradient in gradients if gradient is not None]


def test_the_asked_type_is_used_where_every_process_gets_rows(group: list[Any]) -> None:
    for kind in SHARDING_TYPES:
        expected = [allowed_types((kind,), rows, len(group))[0] for rows in ROWS]
        assert group[0][kind, "fp32"]["types"] == expected
        assert expected[0] == kind


@pytest.mark.parametrize(
    ("rows", "processes", "divided"), [(1, 2, False), (2, 2, True), (5, 4, False), (4, 4, True), (9, 4, False)]
)
def test_a_table_that_would_leave_a_process_empty_is_not_divided_by_row(
    rows: int, processes: int, divided: bool
) -> None:
    expected = EXACT_SHARDING_TYPES if divided else ("data_parallel", "table_wise")
    assert allowed_types(EXACT_SHARDING_TYPES, rows, processes) == expected
    assert allowed_types(("row_wise",), rows, processes) == (("row_wise",) if divided else ("data_parallel",))


def test_the_planner_is_told_bytes_a_millisecond() -> None:
    machine = Machine(memory_bytes=5 << 30, memory_bytes_per_second=2e10, link_bytes_per_second=1e9)
    topology = build_topology(Sharding(machine=machine), CPU, 4)
    assert topology.ddr_mem_bw == 2e7
    assert topology.intra_host_bw == topology.inter_host_bw == 1e6
    assert [device.storage.ddr for device in topology.devices] == [5 << 30] * 4
    assert topology.world_size == topology.local_world_size == 4
