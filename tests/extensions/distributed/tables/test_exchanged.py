"""Rows that travel one by one are looked up and learned as those of whole tables, whoever holds them."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributed as dist

from shunter.extensions.distributed.tables.exchanged import ExchangedTable, RowExchange
from shunter.models.embeddings.torch_kernel import TorchEmbeddings
from tests.extensions.distributed.training.ranks import run

CPU = torch.device("cpu")
WIDTH, RATE, STEPS, CASES = 4, 0.1, 3, 12
ID_BYTES, ROW_BYTES = 4, 4 * WIDTH


@dataclass(frozen=True)
class Case:
    """Tables, who holds them, and how often a sample looks them up."""

    tables: tuple[ExchangedTable, ...]
    table_of: tuple[int, ...]
    batch: int

    @classmethod
    def drawn(cls, seed: int, processes: int) -> "Case":
        chance = random.Random(seed)
        tables = []
        for number in range(chance.randint(1, 4)):
            rows = chance.randint(1, 40)
            owners = tuple(range(processes)) if chance.random() < 0.5 else (chance.randrange(processes),)
            tables.append(
                ExchangedTable(number=number, rows=rows, replicated_rows=chance.randrange(rows), owners=owners)
            )
        bags = [table.number for table in tables for _ in range(chance.randint(1, 2))]
        return cls(tuple(tables), tuple(bags), chance.randint(1, 7))

    def ids(self, rank: int, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Values, bounds and weights of a process's batch; bags of none to three ids."""
        generator = torch.Generator().manual_seed(1000 * rank + step)
        lengths = torch.randint(0, 4, (len(self.table_of), self.batch), generator=generator)
        values = [
            torch.randint(0, self.tables[table].rows, (int(own.sum()),), generator=generator)
            for table, own in zip(self.table_of, lengths, strict=True)
        ]
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.flatten().cumsum(0)])
        flat = torch.cat(values)
        return flat.int(), offsets.int(), torch.rand(len(flat), generator=generator)

    def gradient(self, rank: int, step: int) -> Tensor:
        generator = torch.Generator().manual_seed(5000 + 1000 * rank + step)
        return torch.randn(self.batch, len(self.table_of) * WIDTH, generator=generator)

    def whole(self) -> TorchEmbeddings:
        tables = TorchEmbeddings([table.rows for table in self.tables], WIDTH, RATE, CPU, self.table_of)
        tables.initialise(torch.Generator().manual_seed(3))
        return tables


def learned(case: Case) -> dict[str, Any]:
    """What the steps of a process have looked up, what they left, and what was sent."""
    exchange = RowExchange(case.tables, WIDTH, case.table_of, RATE, CPU)
    for shard in exchange.shards():
        start = case.whole().tables[shard.table]
        shard.weight.copy_(start[shard.first_row : shard.first_row + len(shard.weight)])
    outputs = []
    for step in range(STEPS):
        pooled = exchange.lookup(*case.ids(dist.get_rank(), step))
        outputs.append(pooled.detach().clone())
        pooled.backward(case.gradient(dist.get_rank(), step))
        exchange.after_backward()
    with torch.no_grad():
        outputs.append(exchange.lookup(*case.ids(dist.get_rank(), STEPS)))
    return {"outputs": outputs, "shards": list(exchange.shards()), "traffic": exchange.traffic}


def all_cases() -> list[dict[str, Any]]:
    return [learned(Case.drawn(seed, dist.get_world_size())) for seed in range(CASES)]


@pytest.fixture(scope="module", params=[2, 3])
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return run(request.param, tmp_path_factory.mktemp("group"), all_cases)


def one_process(case: Case, processes: int) -> tuple[list[list[Tensor]], TorchEmbeddings]:
    """Outputs of each step for each process's batch, and the tables after all of them, by one process alone."""
    tables = case.whole()
    outputs: list[list[Tensor]] = []
    for step in range(STEPS + 1):
        batches = [case.ids(rank, step) for rank in range(processes)]
        with torch.no_grad():
            outputs.append([tables.lookup(*batch).clone() for batch in batches])
        if step < STEPS:
            # All processes' batches as one: bag by bag, the samples of one process after those of the other.
            count = len(case.table_of)
            split = [_by_bag(batch, count, case.batch) for batch in batches]
            together = [
                torch.cat([split[rank][bag][one] for bag in range(count) for rank in range(processes)])
                for one in range(3)
            ]
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), together[1].cumsum(0)]).int()
            pooled = tables.lookup(together[0], offsets, together[2])
            pooled.backward(torch.cat([case.gradient(rank, step) for rank in range(processes)]) / processes)
            tables.after_backward()
    return outputs, tables


def _by_bag(batch: tuple[Tensor, Tensor, Tensor], bags: int, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    values, offsets, weights = batch
    found = []
    for bag in range(bags):
        own = slice(int(offsets[bag * size]), int(offsets[(bag + 1) * size]))
        found.append((values[own], offsets[bag * size : (bag + 1) * size + 1].diff(), weights[own]))
    return found


@pytest.mark.parametrize("number", range(CASES))
def test_lookups_and_steps_are_those_of_whole_tables(group: list[Any], number: int) -> None:
    case = Case.drawn(number, len(group))
    outputs, tables = one_process(case, len(group))
    sums = tables.adagrad_sum.split(tables.rows)
    for rank, results in enumerate(group):
        for step, output in enumerate(results[number]["outputs"]):
            torch.testing.assert_close(output, outputs[step][rank], rtol=1e-4, atol=1e-6)
        for shard in results[number]["shards"]:
            rows = slice(shard.first_row, shard.first_row + len(shard.weight))
            torch.testing.assert_close(shard.weight, tables.tables[shard.table][rows], rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(shard.adagrad_sum, sums[shard.table][rows], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("number", range(CASES))
def test_every_row_lies_in_one_process_or_in_all_with_equal_copies(group: list[Any], number: int) -> None:
    case = Case.drawn(number, len(group))
    held = [[0] * table.rows for table in case.tables]
    copies: dict[int, list[Tensor]] = {}
    for results in group:
        for shard in results[number]["shards"]:
            if shard.replicated:
                copies.setdefault(shard.table, []).append(shard.weight)
            for row in range(shard.first_row, shard.first_row + len(shard.weight)):
                held[shard.table][row] += 1
    for table, rows in zip(case.tables, held, strict=True):
        assert rows == [len(group)] * table.replicated_rows + [1] * (table.rows - table.replicated_rows)
        assert all(torch.equal(one, copies[table.number][0]) for one in copies.get(table.number, []))


@pytest.mark.parametrize("number", range(CASES))
def test_as_many_rows_travel_as_are_distinct_and_lie_elsewhere(group: list[Any], number: int) -> None:
    case, processes = Case.drawn(number, len(group)), len(group)
    sent = 0
    for step in range(STEPS + 1):
        looked_up = [_rows_of(case, rank, step) for rank in range(processes)]
        travelled = [sum(owner not in (rank, None) for owner in looked_up[rank].values()) for rank in range(processes)]
        sent += sum(travelled) * (ID_BYTES + ROW_BYTES)
        if step < STEPS:
            copied = max(list(rows.values()).count(None) for rows in looked_up)
            sent += sum(travelled) * ROW_BYTES + processes * (processes - 1) * copied * (ID_BYTES + ROW_BYTES)
    for rank, results in enumerate(group):
        rows = [_rows_of(case, rank, step) for step in range(STEPS + 1)]
        asked = sum(owner not in (rank, None) for one in rows for owner in one.values())
        assert (results[number]["traffic"].steps, results[number]["traffic"].rows) == (STEPS, asked)
    assert sum(results[number]["traffic"].sent_bytes for results in group) == sent


def _rows_of(case: Case, rank: int, step: int) -> dict[tuple[int, int], int | None]:
    """Owner of each distinct row that a process looks up; None where all have it."""
    values, offsets, _ = case.ids(rank, step)
    found: dict[tuple[int, int], int | None] = {}
    for bag, number in enumerate(case.table_of):
        table = case.tables[number]
        for row in values[offsets[bag * case.batch] : offsets[(bag + 1) * case.batch]].tolist():
            owners = [owner for owner, first, rows in table.blocks() if first <= row < first + rows]
            found[number, row] = owners[0] if owners else None
    return found
