"""Tables in a file end bit by bit as the same tables in memory, whatever order the rows come in."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from shunter.engine.data.pipeline import Prefetcher
from shunter.errors import HardwareError, RequestError, TooLargeError
from shunter.extensions.tiers.tiered import TieredEmbeddings
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.embeddings.request import EmbeddingCache, Kernel
from shunter.models.embeddings.role import EmbeddingTables
from tests.models.kernels import KERNELS

CPU = torch.device("cpu")
DIM = 4
TABLES = [9, 1, 14]
Batch = tuple[Tensor, Tensor]


def build(rows: list[int], kernel: Kernel, cache: EmbeddingCache | None = None) -> EmbeddingTables:
    tables = (
        build_embeddings(rows, DIM, learning_rate=0.1, device=CPU, kernel=kernel)
        if cache is None
        else TieredEmbeddings(rows, DIM, learning_rate=0.1, device=CPU, cache=cache, kernel=kernel)
    )
    tables.initialise(torch.Generator().manual_seed(3))
    return tables


def build_tiered(rows: list[int], kernel: Kernel, slots: int, window: int = 1) -> TieredEmbeddings:
    tables = build(rows, kernel, EmbeddingCache(rows=slots, window_batches=window))
    assert isinstance(tables, TieredEmbeddings)
    return tables


def draw_batches(rows: list[int], count: int, samples: int, seed: int) -> list[Batch]:
    """Batches of bags of 0 to 3 ids; ids are skewed, so that some rows come in every batch and others rarely."""
    random = np.random.default_rng(seed)
    batches = []
    for _ in range(count):
        lengths = random.integers(0, 4, (len(rows), samples))
        values = [np.minimum(random.zipf(1.2, n.sum()) - 1, size - 1) for size, n in zip(rows, lengths, strict=True)]
        offsets = np.concatenate([[0], lengths.ravel().cumsum()])
        batches.append((torch.from_numpy(np.concatenate(values)).int(), torch.from_numpy(offsets).int()))
    return batches


def train_step(tables: EmbeddingTables, values: Tensor, offsets: Tensor, seed: int) -> Tensor:
    output = tables(values, offsets)
    output.backward(torch.randn(output.shape, generator=torch.Generator().manual_seed(seed)))
    return output.detach()


def train_in_memory(tables: EmbeddingTables, batches: list[Batch]) -> list[Tensor]:
    return [train_step(tables, *batch, seed) for seed, batch in enumerate(batches)]


def train_tiered(tables: TieredEmbeddings, batches: list[Batch], depth: int, first_seed: int = 0) -> list[Tensor]:
    """As training does it: batches are admitted by a thread, up to `depth` of them ahead."""
    tables.begin()
    source = ((tables.admit(*batch), batch[1]) for batch in batches)
    with Prefetcher(source, depth=depth) as admitted:
        return [train_step(tables, *batch, seed) for seed, batch in enumerate(admitted, start=first_seed)]


def assert_same_tables(tiered: TieredEmbeddings, in_memory: EmbeddingTables) -> None:
    assert torch.equal(tiered.state_dict()["weight"], in_memory.weight)
    assert torch.equal(tiered.adagrad_sum, in_memory.adagrad_sum)


def largest_window(batches: list[Batch], window: int) -> int:
    """Most distinct rows of that many neighbouring batches."""
    starts = torch.tensor([0, *TABLES[:-1]]).cumsum(0)
    rows = []
    for values, offsets in batches:
        ids_of_table = offsets[:: (len(offsets) - 1) // len(TABLES)].diff()
        rows.append(set((values + torch.repeat_interleave(starts, ids_of_table)).tolist()))
    return max(len(set().union(*rows[max(i - window + 1, 0) : i + 1])) for i in range(len(rows)))


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=12, deadline=None)  # of 20 batches each
@given(seed=st.integers(0, 10_000), samples=st.integers(1, 3), depth=st.integers(1, 3), spare=st.integers(0, 4))
def test_any_access_pattern_gives_bitwise_the_tables_in_memory(
    kernel: Kernel, seed: int, samples: int, depth: int, spare: int
) -> None:
    batches = draw_batches(TABLES, count=20, samples=samples, seed=seed)
    window = depth + 2
    in_memory = build(TABLES, kernel)
    slots = max(largest_window(batches, window), 1) + spare
    tiered = build_tiered(TABLES, kernel, slots, window)
    tiered.l2 = in_memory.l2
    expected = train_in_memory(in_memory, batches)
    found = train_tiered(tiered, batches, depth)
    assert all(torch.equal(left, right) for left, right in zip(found, expected, strict=True))
    assert_same_tables(tiered, in_memory)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=12, deadline=None)  # of 20 batches each
@given(seed=st.integers(0, 10_000), samples=st.integers(1, 3), depth=st.integers(1, 3), spare=st.integers(0, 4))
def test_a_cache_that_holds_one_batch_alone_gives_them_too(
    kernel: Kernel, seed: int, samples: int, depth: int, spare: int
) -> None:
    batches = draw_batches(TABLES, count=20, samples=samples, seed=seed)
    in_memory = build(TABLES, kernel)
    tiered = build_tiered(TABLES, kernel, max(largest_window(batches, 1), 1) + spare, depth + 2)
    expected = train_in_memory(in_memory, batches)
    found = train_tiered(tiered, batches, depth)
    assert all(torch.equal(left, right) for left, right in zip(found, expected, strict=True))
    assert_same_tables(tiered, in_memory)


def test_a_large_batch_waits_for_its_turn_and_those_behind_it_are_ahead_again() -> None:
    in_memory, tiered = build([9], "torch"), build_tiered([9], "torch", slots=4, window=3)
    batches = [
        (torch.tensor(rows, dtype=torch.int32), torch.tensor([0, len(rows)], dtype=torch.int32))
        for rows in ([0, 1], [2, 3, 4, 5], [1], [2])
    ]
    expected = train_in_memory(in_memory, batches)
    admitted = [tiered.admit(*batch) for batch in batches]
    assert [batch.is_there for batch in tiered._admitted] == [True, False, False, False]
    found = [train_step(tiered, admitted[seed], batches[seed][1], seed) for seed in (0, 1)]
    assert [batch.is_there for batch in tiered._admitted] == [False, False]
    found.append(train_step(tiered, admitted[2], batches[2][1], 2))
    assert [batch.is_there for batch in tiered._admitted] == [True]
    found.append(train_step(tiered, admitted[3], batches[3][1], 3))
    assert all(torch.equal(left, right) for left, right in zip(found, expected, strict=True))
    assert_same_tables(tiered, in_memory)
    assert tiered.cache_counts.lookups == 8


def test_a_batch_of_more_rows_than_the_cache_is_refused() -> None:
    tiered = build_tiered([9], "torch", slots=2)
    with pytest.raises(TooLargeError, match="--embedding"):
        tiered.admit(torch.tensor([1, 2, 3], dtype=torch.int32), torch.tensor([0, 3], dtype=torch.int32))


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=12, deadline=None)
@given(touched=st.lists(st.sampled_from([(0,), (1,), (8,), (0, 8), ()]), min_size=1, max_size=30))
@example(touched=[(0,), (1,)] * 8)
@example(touched=[(0, 8), (1,), (0,)] * 5)
def test_rows_that_displace_each_other_at_every_batch_keep_their_values(
    kernel: Kernel, touched: list[tuple[int, ...]]
) -> None:
    batches = [
        (torch.tensor(rows, dtype=torch.int32), torch.tensor([0, len(rows)], dtype=torch.int32)) for rows in touched
    ]
    in_memory, tiered = build([9], kernel), build_tiered([9], kernel, slots=2)
    expected = train_in_memory(in_memory, batches)
    for seed, (values, offsets) in enumerate(batches):
        found = train_step(tiered, tiered.admit(values, offsets), offsets, seed)
        assert torch.equal(found, expected[seed])
    assert_same_tables(tiered, in_memory)


@pytest.mark.parametrize("kernel", KERNELS)
def test_many_rows_moved_while_a_batch_is_trained_give_bitwise_the_tables_in_memory(kernel: Kernel) -> None:
    rows = [4_000, 7, 3_000]
    random = np.random.default_rng(0)
    offsets = torch.arange(len(rows) * 300 + 1, dtype=torch.int32)
    batches = [
        (torch.from_numpy(np.concatenate([random.integers(0, size, 300) for size in rows])).int(), offsets)
        for _ in range(150)
    ]
    in_memory, tiered = build(rows, kernel), build_tiered(rows, kernel, slots=2_700, window=4)
    in_memory.l2 = tiered.l2 = 0.01
    expected = train_in_memory(in_memory, batches)
    found = train_tiered(tiered, batches, depth=2)
    assert all(torch.equal(left, right) for left, right in zip(found, expected, strict=True))
    assert_same_tables(tiered, in_memory)
    assert tiered.cache_counts.written_back > 10_000


@pytest.mark.parametrize("kernel", KERNELS)
def test_saving_and_scoring_between_the_steps_change_nothing(kernel: Kernel) -> None:
    batches = draw_batches(TABLES, count=30, samples=3, seed=1)
    in_memory, tiered = build(TABLES, kernel), build_tiered(TABLES, kernel, slots=sum(TABLES), window=1)
    for seed, (values, offsets) in enumerate(batches):
        train_step(in_memory, values, offsets, seed)
        train_step(tiered, tiered.admit(values, offsets), offsets, seed)
        if seed % 3 == 0:
            assert_same_tables(tiered, in_memory)
        if seed % 4 == 0:
            scored = [tables.eval()(*batches[0]) for tables in (in_memory, tiered)]
            assert torch.equal(*scored)
            for tables in (in_memory, tiered):
                tables.train()
    assert_same_tables(tiered, in_memory)


def test_batches_admitted_and_never_trained_leave_no_trace() -> None:
    batches = draw_batches(TABLES, count=20, samples=2, seed=2)
    in_memory, tiered = build(TABLES, "torch"), build_tiered(TABLES, "torch", slots=20, window=3)
    train_in_memory(in_memory, batches)
    for start in range(0, 20, 5):
        train_tiered(tiered, batches[start : start + 5], depth=1, first_seed=start)
        tiered.begin()
        tiered.admit(*batches[0])
        tiered.admit(*batches[7])
    assert_same_tables(tiered, in_memory)


def test_the_row_that_the_torch_kernel_always_writes_to_holds_no_row_of_a_table() -> None:
    """Its update adds zeros to row 0; had another thread just put a row there, the sum could undo that."""
    tiered = build_tiered([9], "torch", slots=9)
    offsets = torch.tensor([0, 9], dtype=torch.int32)
    slots = tiered.admit(torch.arange(9, dtype=torch.int32), offsets)
    assert sorted(slots.tolist()) == list(range(1, 10))
    train_step(tiered, slots, offsets, 0)
    assert not tiered._kernel[0].weight[0].any()


def test_a_new_sequence_needs_no_room_for_the_last_batches_of_the_former() -> None:
    tiered = build_tiered([9], "torch", slots=3, window=3)
    offsets = torch.tensor([0, 3], dtype=torch.int32)
    for ids in ([0, 1, 2], [3, 4, 5]):
        tiered.begin()
        tiered.admit(torch.tensor(ids, dtype=torch.int32), offsets)
    assert tiered.cache_counts.written_back == 3


def test_rows_that_are_loaded_replace_those_in_the_cache() -> None:
    tiered, other = build_tiered([9], "torch", slots=4), build([9], "torch")
    values, offsets = torch.tensor([1, 2], dtype=torch.int32), torch.tensor([0, 2], dtype=torch.int32)
    train_step(tiered, tiered.admit(values, offsets), offsets, 0)
    tiered.load_state_dict(other.state_dict())
    assert torch.equal(tiered.state_dict()["weight"], other.weight)
    found = train_step(tiered, tiered.admit(values, offsets), offsets, 1)
    assert torch.equal(found, train_step(other, values, offsets, 1))


def test_hits_misses_and_write_backs_are_counted() -> None:
    tiered = build_tiered([9], "torch", slots=2)
    offsets = torch.tensor([0, 3], dtype=torch.int32)
    for ids in ([0, 1, 0], [1, 1, 1], [1, 2, 2], [0, 0, 0]):
        tiered.admit(torch.tensor(ids, dtype=torch.int32), offsets)
    counts = tiered.cache_counts
    assert (counts.lookups, counts.hits, counts.misses, counts.written_back) == (12, 2, 4, 2)
    assert counts.transfer_seconds > 0


def test_ids_that_were_not_admitted_are_no_training_batch() -> None:
    tiered = build_tiered([9], "torch", slots=4)
    values, offsets = torch.tensor([1], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    with pytest.raises(AssertionError, match="is admitted before"):
        tiered(values, offsets)
    tiered.admit(values, offsets)
    with pytest.raises(AssertionError, match="in the order"):
        tiered(values, offsets)


@pytest.mark.parametrize("kernel", KERNELS)
def test_empty_bags_give_zeros(kernel: Kernel) -> None:
    tiered = build_tiered([5, 6], kernel, slots=3)
    values, offsets = torch.empty(0, dtype=torch.int32), torch.zeros(2 * 3 + 1, dtype=torch.int32)
    output = tiered(tiered.admit(values, offsets), offsets)
    output.sum().backward()
    assert output.shape == tiered.eval()(values, offsets).shape == (3, 2, DIM)
    assert not output.any()


def test_the_files_have_no_name_and_their_room_is_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve, reserved = os.posix_fallocate, []

    def reserve_and_look(descriptor: int, offset: int, length: int) -> None:
        reserve(descriptor, offset, length)
        reserved.append(os.fstat(descriptor).st_blocks * 512)

    monkeypatch.setattr(os, "posix_fallocate", reserve_and_look)
    tables = build([10_000], "torch", EmbeddingCache(rows=10, window_batches=1, directory=tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert tables.weight.shape == (10_000, DIM)
    assert reserved[0] >= 10_000 * DIM * 4
    assert reserved[1] >= 10_000 * 4


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(HardwareError, match="144"):
        build([9], "torch", EmbeddingCache(rows=1, window_batches=1, directory=tmp_path))


@pytest.mark.parametrize(
    ("slots", "device", "message"), [(0, "cpu", "too small"), (-3, "cpu", "too small"), (5, "meta", "not on meta")]
)
def test_a_cache_that_cannot_be_is_refused(slots: int, device: str, message: str) -> None:
    cache = EmbeddingCache(rows=slots, window_batches=1)
    with pytest.raises(RequestError, match=message):
        TieredEmbeddings([9], DIM, learning_rate=0.1, device=torch.device(device), cache=cache)
