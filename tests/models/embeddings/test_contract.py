"""What holds for every kind of embedding tables, whole or divided: the role `shunter.models.embeddings.role`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch import distributed as dist

from shunter.extensions.distributed.tables.sharded import ShardedEmbeddings
from shunter.extensions.distributed.training.hosts import Hosts
from shunter.extensions.distributed.training.plan import Sharding, make_plan
from shunter.model_families import MODEL_FAMILIES
from shunter.models.embeddings.kinds import build_tables
from shunter.models.embeddings.request import EmbeddingCache, Kernel, TableRequest
from shunter.models.embeddings.role import EPSILON, EmbeddingTables
from shunter.models.spec import TableShape
from tests.extensions.distributed.training.ranks import MACHINE, run
from tests.models.kernels import KERNELS

CPU = torch.device("cpu")
ROWS, DIM, RATE = (9, 4, 14), 8, 0.1
WHOLE = tuple(TableShape(ids=rows, rows=rows, width=DIM) for rows in ROWS)
HALF = tuple(shape._replace(number_bytes=2) for shape in WHOLE)
MIXED = (TableShape(ids=9, rows=9, width=4), TableShape(ids=4, rows=4, width=8), TableShape(ids=20, rows=14, width=4))
# Two samples: bags of two, one, no and three ids.
BATCH = (torch.tensor([2, 7, 5, 1, 13, 0, 13]).int(), torch.tensor([0, 2, 3, 3, 4, 7, 7]).int())
TOUCHED = ({2, 7, 5}, {1}, {13, 0})
SHAPES = {"mixed": MIXED, "fp16": HALF}
Make = Callable[[], EmbeddingTables]
Blocks = list[tuple[Tensor, Tensor]]


def wanted(kernel: Kernel, **options: object) -> TableRequest:
    values = {"shapes": WHOLE, "dim": DIM, "table_of": (0, 1, 2), "learning_rate": RATE, "device": CPU, **options}
    return TableRequest(kernel=kernel, **values)  # pyright: ignore[reportArgumentType]


def cached(rows: int) -> EmbeddingCache:
    return EmbeddingCache(rows=rows, window_batches=1)


REQUESTS = {
    f"{name} by {kernel}": wanted(kernel, **options)
    for kernel in KERNELS
    for name, options in {
        "in memory": {},
        "mixed": {"shapes": MIXED, "is_mixed": True},
        "behind a cache of few rows": {"cache": cached(6)},
        "behind a cache of all rows": {"cache": cached(27)},
        "in fp16": {"shapes": HALF, "is_half": True},
    }.items()
}


@pytest.fixture(params=list(REQUESTS.values()), ids=list(REQUESTS))
def make(request: pytest.FixtureRequest) -> Make:
    asked: TableRequest = request.param
    if asked.kernel == "fbgemm":
        pytest.importorskip("fbgemm_gpu")
    return lambda: build_tables(asked)


def initialised(make: Make, seed: int = 3) -> EmbeddingTables:
    tables = make()
    tables.initialise(torch.Generator().manual_seed(seed))
    return tables.train()


def step(tables: EmbeddingTables, seed: int = 0) -> Tensor:
    """One training step as the engine does it."""
    values, offsets = BATCH
    tables.begin()
    pooled = tables(tables.admit(values, offsets), offsets)
    if pooled.requires_grad:
        pooled.backward(torch.randn(pooled.shape, generator=torch.Generator().manual_seed(seed)))
        tables.after_backward()
    return pooled.detach()


def blocks(tables: EmbeddingTables) -> Blocks:
    return [(shard.weight.clone(), shard.adagrad_sum.clone()) for shard in tables.shards()]


def are_equal(one: Blocks, other: Blocks) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in pairs)


def check_initial_weights(make: Make) -> None:
    first, again, other = (blocks(initialised(make, seed)) for seed in (3, 3, 4))
    assert are_equal(first, again)
    assert not are_equal(first, other)
    assert not any(sums.any() for _, sums in first)


def test_tables_that_wait_for_weights_or_for_a_measurement_take_a_step(make: Make) -> None:
    waiting, repeated = make(), make()
    waiting.await_weights()
    assert not any(sums.any() for _, sums in blocks(waiting))
    repeated.repeat_few_rows(torch.Generator().manual_seed(0))
    for weight, sums in blocks(repeated):
        assert not sums.any()
        assert 0 < float(weight.abs().max()) <= len(weight) ** -0.5
    step(repeated.train())
    assert any(sums.any() for _, sums in blocks(repeated))


def check_a_step_changes_touched_rows_alone_and_their_state(make: Make) -> None:
    tables = initialised(make)
    before = blocks(tables)
    step(tables)
    for shard, (weight, sums) in zip(tables.shards(), before, strict=True):
        rows = range(shard.first_row, shard.first_row + len(weight))
        expected = [row in TOUCHED[shard.table] for row in rows]
        assert (shard.weight != weight).any(1).tolist() == expected
        assert (shard.adagrad_sum > sums).tolist() == expected


def check_frozen_tables_stay(make: Make) -> None:
    tables = initialised(make)
    before = blocks(tables)
    tables.is_frozen = True
    frozen = step(tables)
    assert are_equal(blocks(tables), before)
    tables.is_frozen = False
    assert torch.equal(step(tables), frozen)


def check_one_frozen_table_stays_while_the_others_learn(make: Make) -> None:
    tables, free = initialised(make), initialised(make)
    before = blocks(tables)
    tables.freeze_tables({1})
    step(tables)
    step(free)
    compared = zip(tables.shards(), blocks(tables), before, blocks(free), strict=True)
    for shard, now, former, learned in compared:
        expected = former if shard.table == 1 else learned
        assert torch.equal(now[0], expected[0])
        assert torch.equal(now[1], expected[1])


def check_evaluation_reads_what_was_trained(make: Make) -> None:
    tables = initialised(make)
    step(tables)
    with torch.no_grad():
        seen = tables.eval()(*BATCH)
    torch.testing.assert_close(step(tables.train()), seen)


def check_another_learning_rate_counts_from_the_next_step_on(make: Make) -> None:
    """Of one step the change is proportional to the rate; what the optimiser keeps does not depend on it."""
    changes, sums = [], []
    for rate in (RATE, RATE / 4):
        tables = initialised(make)
        step(tables)
        before = blocks(tables)
        tables.set_learning_rate(rate)
        step(tables, seed=1)
        after = blocks(tables)
        changes += [weight - former for (weight, _), (former, _) in zip(after, before, strict=True)]
        sums += [adagrad_sum for _, adagrad_sum in after]
    for full, quarter in zip(changes[: len(changes) // 2], changes[len(changes) // 2 :], strict=True):
        # In fp16 either is off by less than the distance of two numbers below 1.
        rounding = 0.0 if full.dtype == torch.float32 else (1 + 1 / 4) * 2.0**-11
        torch.testing.assert_close(quarter.float(), full.float() / 4, rtol=1e-4, atol=1e-6 + rounding)
    for one, other in zip(sums[: len(sums) // 2], sums[len(sums) // 2 :], strict=True):
        assert torch.equal(one, other)


def check_weights_count_like_repetitions(make: Make) -> None:
    """A bag that holds an id twice is one that holds it once with weight 2, forward and in the update."""
    repeated = (torch.tensor([2, 2, 7, 5, 1, 1, 1, 13, 0, 13]).int(), torch.tensor([0, 3, 4, 4, 7, 10, 10]).int())
    once = (torch.tensor([2, 7, 5, 1, 13, 0]).int(), torch.tensor([0, 2, 3, 3, 4, 6, 6]).int())
    learned = []
    for (values, offsets), weights in ((repeated, [1.0] * 10), (once, [2.0, 1.0, 1.0, 3.0, 2.0, 1.0])):
        tables = initialised(make)
        tables.begin()
        pooled = tables(tables.admit(values, offsets), offsets, torch.tensor(weights))
        pooled.backward(torch.randn(pooled.shape, generator=torch.Generator().manual_seed(0)))
        tables.after_backward()
        with torch.no_grad():
            seen = tables.eval()(values, offsets, torch.tensor(weights))
        learned.append((pooled.detach(), seen, *(tensor for block in blocks(tables) for tensor in block)))
    torch.testing.assert_close(learned[0], learned[1])


CHECKS = (
    check_another_learning_rate_counts_from_the_next_step_on,
    check_initial_weights,
    check_a_step_changes_touched_rows_alone_and_their_state,
    check_frozen_tables_stay,
    check_one_frozen_table_stays_while_the_others_learn,
    check_evaluation_reads_what_was_trained,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_tables_in_one_process(check: Callable[[Make], None], make: Make) -> None:
    check(make)


def test_weights_count_like_repetitions(make: Make) -> None:
    check_weights_count_like_repetitions(make)


def test_a_weighted_bag_is_the_sum_of_weight_times_row_and_its_update_that_of_row_wise_adagrad() -> None:
    """Weights that are no whole numbers, negative ones among them, by a loop over samples and ids."""
    tables = initialised(lambda: build_tables(wanted("auto")))
    values, offsets = BATCH
    weights = torch.tensor([0.5, -1.25, 2.0, 0.0, 0.3, 1.0, 0.7])
    before = [table.double().clone() for table in tables.tables]
    gradient = torch.randn(2, 3, DIM, generator=torch.Generator().manual_seed(0))
    pooled = tables(values, offsets, weights)
    pooled.backward(gradient)
    expected, gradients = torch.zeros(2, 3, DIM).double(), [torch.zeros_like(table) for table in before]
    for bag in range(6):
        table, sample = divmod(bag, 2)
        for place in range(int(offsets[bag]), int(offsets[bag + 1])):
            weight, row = float(weights[place]), int(values[place])
            expected[sample, table] += weight * before[table][row]
            gradients[table][row] += weight * gradient[sample, table].double()
    torch.testing.assert_close(pooled.detach(), expected.float())
    for table, start, change in zip(tables.tables, before, gradients, strict=True):
        sums = change.square().mean(1, keepdim=True)
        torch.testing.assert_close(
            table, (start - RATE * change / (sums.sqrt() + EPSILON)).float(), rtol=1e-4, atol=1e-6
        )


def test_what_is_saved_goes_on_bit_by_bit_as_before(make: Make) -> None:
    tables, loaded = initialised(make), initialised(make, seed=5)
    step(tables)
    step(loaded)  # whatever it holds by then is gone after loading
    weights = {name: tensor.clone() for name, tensor in tables.state_dict().items()}
    state = {name: tensor.clone() for name, tensor in tables.optimizer_tensors().items()}
    assert not weights.keys() & state.keys()
    loaded.load_state_dict(weights)
    loaded.load_optimizer_tensors(state)
    assert are_equal(blocks(loaded), blocks(tables))
    assert torch.equal(step(loaded, seed=1), step(tables, seed=1))
    assert are_equal(blocks(loaded), blocks(tables))


def test_counted_bytes_are_the_bytes_that_are_held(make: Make, request: pytest.FixtureRequest) -> None:
    shapes = next((shapes for name, shapes in SHAPES.items() if name in request.node.name), WHOLE)
    assert make().held_bytes() == EmbeddingTables.count_bytes(shapes)


def test_all_kinds_of_equal_shapes_start_alike() -> None:
    starts = [
        blocks(initialised(lambda asked=asked: build_tables(asked)))
        for asked in REQUESTS.values()
        if asked.shapes == WHOLE
    ]
    assert all(are_equal(start, starts[0]) for start in starts)


def sharded(sharding_type: str, *, is_weighted: bool = False) -> ShardedEmbeddings:
    sharding = Sharding(machine=MACHINE, types=(sharding_type,), processes_per_node=2)  # type: ignore[arg-type]
    return ShardedEmbeddings(
        WHOLE,
        DIM,
        learning_rate=RATE,
        device=CPU,
        make_plan=lambda collection, sharder: make_plan(
            collection, sharder, sharding, CPU, batch_size=2, ids_per_sample=[1.5] * len(ROWS)
        ),
        is_weighted=is_weighted,
    )


def by_tower() -> EmbeddingTables:
    from shunter.extensions.towers.sptt import TowerEmbeddings, TowerLayout

    hosts, layout = Hosts(1), TowerLayout.divide(((0, 2), (1,)), 1, ROWS)
    return TowerEmbeddings(ROWS, DIM, learning_rate=RATE, device=CPU, hosts=hosts, layout=layout, kernel="torch")


DIVIDED: dict[str, Make] = {
    **{name: lambda name=name: sharded(name) for name in ("data_parallel", "table_wise", "row_wise", "column_wise")},
    **({"by tower": by_tower} if "dmt" in MODEL_FAMILIES.names else {}),
}


def keep_the_contract() -> dict[str, tuple[int, int]]:
    """Check every divided kind in every process; returns the bytes that this one counts of each, copies once."""
    held = {}
    for name, make in DIVIDED.items():
        for check in CHECKS:
            check(make)
        check_shards_hold_the_state(make)
        own = [shard for shard in make().shards() if dist.get_rank() == 0 or not shard.replicated]
        held[name] = (sum(shard.weight.nbytes for shard in own), sum(shard.adagrad_sum.nbytes for shard in own))
        if name != "by tower":
            check_weights_count_like_repetitions(lambda name=name: sharded(name, is_weighted=True))
    return held


def check_shards_hold_the_state(make: Make) -> None:
    tables, loaded = initialised(make), initialised(make, seed=5)
    step(tables)
    step(loaded)
    with torch.no_grad():
        for shard, (weight, sums) in zip(loaded.shards(), blocks(tables), strict=True):
            shard.weight.copy_(weight)
            shard.adagrad_sum.copy_(sums)
    assert torch.equal(step(loaded, seed=1), step(tables, seed=1))
    assert are_equal(blocks(loaded), blocks(tables))


@pytest.mark.slow
def test_the_contract_of_tables_divided_over_processes(tmp_path: Path) -> None:
    pytest.importorskip("torchrec")
    held = run(2, tmp_path, keep_the_contract)
    counted = EmbeddingTables.count_bytes(WHOLE)
    for name in DIVIDED:
        weights, sums = (sum(of_process) for of_process in zip(*(part[name] for part in held), strict=True))
        assert weights == counted.weights, name
        # Divided columns keep a sum of each row in each process.
        assert sums == counted.optimizer * (2 if name == "column_wise" else 1), name
