"""Tables in a file: what a lookup gives is what the tables in memory give, bit by bit, whatever lies where."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shunter.errors import TooLargeError
from shunter.extensions.tiers.stored.memory_division import divide
from shunter.extensions.tiers.stored.row_file import RowFile
from shunter.extensions.tiers.stored.tables import StoredEmbeddings
from shunter.models.embeddings.kinds import build_embeddings

ROWS, DIM, TABLE_OF = (700, 5, 3_000), 8, (0, 1, 2, 2)
LEAST = 8 * 3 * 4_096
WEIGHT = torch.randn(sum(ROWS), DIM, generator=torch.Generator().manual_seed(0))


def stored(folder: Path, memory: int = LEAST, **division: Any) -> StoredEmbeddings:
    path = folder / "rows"
    if not path.exists():
        path.write_bytes(bytes(12) + WEIGHT.numpy().tobytes())
    divided = divide(memory, ROWS, DIM, len(TABLE_OF), **division)
    with path.open("rb") as file:
        rows = RowFile(file.fileno(), 12, sum(ROWS), DIM, divided.buffer_bytes)
    return StoredEmbeddings(ROWS, DIM, TABLE_OF, rows, divided).eval()


def in_memory() -> torch.nn.Module:
    tables = build_embeddings(ROWS, DIM, learning_rate=0.0, device=torch.device("cpu"), table_of=TABLE_OF)
    tables.weight.copy_(WEIGHT)
    return tables.eval()


def batch_of(lengths: np.ndarray, random: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Bags of these lengths, `[bags of a sample, batch]`."""
    ids = [random.zipf(1.2, int(of.sum())) % ROWS[table] for table, of in zip(TABLE_OF, lengths, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return torch.tensor(np.concatenate(ids), dtype=torch.int32), torch.tensor(offsets, dtype=torch.int32)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
@given(
    memory=st.integers(LEAST, 1 << 18),
    division=st.fixed_dictionaries(
        {
            "has_lists": st.booleans(),
            "pinned_share": st.sampled_from([0.0, 0.5, 1.0]),
            "policy": st.sampled_from(["lru", "lfu"]),
            "is_ranked": st.sampled_from([None, [True, True, False]]),
        }
    ),
    batches=st.lists(st.integers(1, 40), max_size=4),
    seed=st.integers(0, 5),
)
def test_sums_are_those_in_memory(
    tmp_path: Path, memory: int, division: dict[str, Any], batches: list[int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    tables, expected = stored(tmp_path, memory, **division), in_memory()
    for batch in batches * 2:  # lists come again
        lengths = random.integers(0, 9, (len(TABLE_OF), batch))
        values, offsets = batch_of(lengths, np.random.default_rng(batch))
        assert torch.equal(tables(values, offsets), expected(values, offsets))
        weights = torch.from_numpy(random.random(len(values), np.float32))
        assert torch.equal(tables(values, offsets, weights), expected(values, offsets, weights))
    tables.close()


def test_each_row_of_a_batch_is_read_once_and_then_found(tmp_path: Path) -> None:
    tables = stored(tmp_path, 1 << 17, pinned_share=0.0)
    values = torch.tensor([600, 600, 3, 4, 2_000, 2_001, 2_000, 2_001], dtype=torch.int32)
    offsets = torch.arange(9, dtype=torch.int32)
    tables(values, offsets)
    assert (tables.counts.read, tables.counts.cached) == (5, 0)
    tables(values, offsets)
    assert (tables.counts.read, tables.counts.cached) == (5, 5)


def test_a_list_that_came_before_is_not_read_again(tmp_path: Path) -> None:
    tables = stored(tmp_path, has_lists=True)
    values = torch.tensor([1, 2, *range(100, 110), 7], dtype=torch.int32)
    offsets = torch.tensor([0, 1, 2, 12, 13], dtype=torch.int32)
    first = tables(values, offsets)
    before = tables.counts
    assert torch.equal(tables(values, offsets), first)
    assert tables.counts.pooled == before.pooled + 1
    found = [sum((one.pinned, one.cached, one.read)) for one in (before, tables.counts)]
    assert found[1] - found[0] == 3


def test_a_list_that_no_memory_holds_is_one_sentence(tmp_path: Path) -> None:
    tables = stored(tmp_path)
    count = tables.memory.batch_rows + 1
    values = torch.cat([torch.tensor([1, 2]), torch.arange(count), torch.tensor([7])]).int()
    offsets = torch.tensor([0, 1, 2, 2 + count, 3 + count], dtype=torch.int32)
    with pytest.raises(TooLargeError, match=f"A list of {count:,} ids"):
        tables(values, offsets)


def test_a_batch_with_more_rows_than_there_is_room_for_is_looked_up_in_parts(tmp_path: Path) -> None:
    tables, expected = stored(tmp_path), in_memory()
    values, offsets = batch_of(np.full((len(TABLE_OF), 2_000), 1), np.random.default_rng(0))
    assert len(np.unique(values)) > tables.memory.batch_rows
    assert torch.equal(tables(values, offsets), expected(values, offsets))


def test_hot_rows_warm_other_tables(tmp_path: Path) -> None:
    former, new = stored(tmp_path, 1 << 17, pinned_share=0.0), stored(tmp_path, 1 << 17, pinned_share=0.0)
    values, offsets = batch_of(np.full((len(TABLE_OF), 50), 1), np.random.default_rng(0))
    former(values, offsets)
    new.warm(former.hot_rows())
    read = new.counts.read
    new(values, offsets)
    assert new.counts.read == read
