"""All kernels against an independent computation, and against each other."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import RequestError
from shunter.models.embeddings import kernel_choice, role
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.embeddings.native_kernel import NativeEmbeddings
from shunter.models.embeddings.role import EPSILON, EmbeddingTables
from shunter.models.embeddings.torch_kernel import TorchEmbeddings
from tests.models.kernels import KERNELS

CPU = torch.device("cpu")
DIM = 4


def build(rows: list[int], kernel: str, learning_rate: float = 0.1, l2: float = 0.0) -> EmbeddingTables:
    tables = build_embeddings(rows, DIM, learning_rate=learning_rate, device=CPU, kernel=kernel)  # type: ignore[arg-type]
    tables.initialise(torch.Generator().manual_seed(3))
    tables.l2 = l2
    return tables


def as_tensors(bags: list[list[list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of `bags[table][sample]`, laid out for the lookup."""
    flat = [bag for table in bags for bag in table]
    values = torch.tensor([i for bag in flat for i in bag], dtype=torch.int32)
    offsets = torch.tensor(np.concatenate([[0], np.cumsum([len(bag) for bag in flat])]), dtype=torch.int32)
    return values, offsets


def step_by_hand(
    tables: EmbeddingTables, bags: list[list[list[int]]], gradient: np.ndarray, sums: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forward and one exact row-wise Adagrad update in loops: output, weights and sums after it."""
    weight = tables.weight.double().numpy().copy()
    starts = np.cumsum([0, *tables.rows])
    output = np.zeros((len(bags[0]), len(bags), DIM))
    row_gradients: dict[int, np.ndarray] = {}
    for t, table in enumerate(bags):
        for b, bag in enumerate(table):
            output[b, t] = sum((weight[starts[t] + i] for i in bag), np.zeros(DIM))
            rarity = [1 / sum(other.count(i) for other in table) for i in bag]
            vector_gradient = gradient[b, t] + tables.l2 * output[b, t] * (np.mean(rarity) if bag else 0)
            for i in bag:
                row = starts[t] + i
                row_gradients[row] = row_gradients.get(row, np.zeros(DIM)) + vector_gradient
    sums = sums.copy()
    for row, row_gradient in row_gradients.items():
        sums[row] += (row_gradient**2).mean()
        weight[row] -= tables.learning_rate * row_gradient / (np.sqrt(sums[row]) + EPSILON)
    return output, weight, sums


@pytest.mark.parametrize("counted_rows", [0, 100], ids=["sorted", "counted"])
@settings(max_examples=15)
@given(ids=st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_occurrences_are_those_of_the_batch_alone(counted_rows: int, ids: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(role, "COUNTED_ROWS", counted_rows)
        tables = build([3, 4], "torch")
        for batch in (ids, ids[:1], ids):
            assert tables._occurrences(torch.tensor(batch)).tolist() == [batch.count(i) for i in batch]


@st.composite
def jagged_batches(draw: st.DrawFn) -> tuple[list[int], list[list[list[int]]]]:
    rows = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    batch = draw(st.integers(1, 4))
    bags = [[draw(st.lists(st.integers(0, size - 1), max_size=4)) for _ in range(batch)] for size in rows]
    return rows, bags


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=15, deadline=None)
@given(drawn=jagged_batches(), seed=st.integers(0, 100), l2=st.sampled_from([0.0, 0.3]))
def test_two_steps_equal_the_computation_by_hand(
    kernel: str, drawn: tuple[list[int], list[list[list[int]]]], seed: int, l2: float
) -> None:
    rows, bags = drawn
    tables = build(rows, kernel, l2=l2)
    values, offsets = as_tensors(bags)
    sums = np.zeros(sum(rows))
    random = np.random.default_rng(seed)
    for _ in range(2):
        gradient = random.normal(size=(len(bags[0]), len(rows), DIM))
        expected_output, expected_weight, sums = step_by_hand(tables, bags, gradient, sums)
        output = tables(values, offsets)
        output.backward(torch.from_numpy(gradient).float())
        np.testing.assert_allclose(output.detach().numpy(), expected_output, atol=1e-5)
        np.testing.assert_allclose(tables.weight.numpy(), expected_weight, atol=1e-5)
        np.testing.assert_allclose(tables.adagrad_sum.numpy(), sums, rtol=1e-4, atol=1e-6)


def test_all_kernels_give_equal_tables_after_many_steps() -> None:
    rows, batch = [500, 3, 40], 64
    kernels = [build(rows, kernel) for kernel in KERNELS]
    random = np.random.default_rng(0)
    for _ in range(30):
        bags = [[random.integers(0, size, random.integers(0, 5)).tolist() for _ in range(batch)] for size in rows]
        values, offsets = as_tensors(bags)
        gradient = torch.from_numpy(random.normal(size=(batch, len(rows), DIM))).float()
        outputs = [tables(values, offsets) for tables in kernels]
        for output in outputs[1:]:
            torch.testing.assert_close(output, outputs[0], atol=1e-5, rtol=0)
        for output in outputs:
            output.backward(gradient)
    for tables in kernels[1:]:
        torch.testing.assert_close(tables.weight, kernels[0].weight, atol=1e-5, rtol=0)
        torch.testing.assert_close(tables.adagrad_sum, kernels[0].adagrad_sum, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_batch_of_empty_bags_gives_zeros_and_changes_nothing(kernel: str) -> None:
    tables = build([5, 6], kernel)
    before = tables.weight.clone()
    output = tables(torch.empty(0, dtype=torch.int32), torch.zeros(2 * 3 + 1, dtype=torch.int32))
    output.sum().backward()
    assert output.shape == (3, 2, DIM)
    assert not output.any()
    assert torch.equal(tables.weight, before)


@pytest.mark.parametrize("kernel", KERNELS)
def test_scoring_without_gradients_changes_nothing(kernel: str) -> None:
    tables = build([5], kernel)
    before = tables.weight.clone()
    with torch.no_grad():
        tables(torch.tensor([1, 1], dtype=torch.int32), torch.tensor([0, 1, 2], dtype=torch.int32))
    assert torch.equal(tables.weight, before)


def test_a_table_that_is_drawn_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build([50, 3], "torch").weight
    monkeypatch.setattr("shunter.models.embeddings.initial_weights.ROWS_DRAWN_AT_ONCE", 7)
    assert torch.equal(build([50, 3], "torch").weight, whole)


@pytest.mark.parametrize("kernel", KERNELS)
def test_tables_have_no_parameters_and_one_float_of_state_a_row(kernel: str) -> None:
    tables = build([5, 6], kernel)
    assert not list(tables.parameters())
    assert tables.adagrad_sum.shape == (11,)
    assert list(tables.state_dict()) == ["weight"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_tables_refuse_to_be_cast(kernel: str) -> None:
    with pytest.raises(RuntimeError, match="cannot be moved or cast"):
        build([5], kernel).double()


@pytest.mark.skipif("native" not in KERNELS, reason="the kernels were not compiled here")
def test_the_native_kernel_is_chosen_where_it_was_built() -> None:
    assert isinstance(build([5], "auto"), NativeEmbeddings)


def test_torch_is_chosen_where_the_native_kernel_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_choice, "library", lambda: None)
    monkeypatch.setitem(sys.modules, "fbgemm_gpu", None)
    assert isinstance(build([5], "auto"), TorchEmbeddings)
    for kernel in ("native", "fbgemm"):
        with pytest.raises(RequestError):
            build([5], kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_touched_row_decays_once_a_step_however_often_it_is_looked_up(kernel: str) -> None:
    rows = [5, 3]
    decaying, plain = build(rows, kernel, l2=0.2), build(rows, kernel)
    values, offsets = as_tensors([[[0], [0], [0], [4]], [[1], [2], [1], [2]]])
    expected = decaying.weight.clone()
    expected[[1, 2, 3, 5]] = 0.0  # what is not touched has no gradient
    decaying(values, offsets).backward(torch.zeros(4, 2, DIM))
    plain_weight = plain.weight.clone()
    gradient = 0.2 * expected
    sums = gradient.square().mean(1)
    step = 0.1 * gradient / (sums.sqrt() + EPSILON).unsqueeze(1)
    torch.testing.assert_close(decaying.adagrad_sum, sums)
    torch.testing.assert_close(decaying.weight, plain_weight - step)


def test_all_tables_start_within_the_bound_that_is_asked_for() -> None:
    tables = build([4, 10_000], "torch")
    small, large = tables.weight.split([4, 10_000])
    assert 0.01 < float(small.abs().max()) <= 0.5
    assert 0.009 < float(large.abs().max()) <= 0.01
    tables.initial_bound = 0.3
    tables.initialise(torch.Generator().manual_seed(3))
    assert [0.2 < float(part.abs().max()) <= 0.3 for part in tables.weight.split([4, 10_000])] == [True, True]


def test_bags_from_none_to_thousands_of_ids_are_summed_and_learned_alike_by_all_kernels() -> None:
    pytest.importorskip("fbgemm_gpu")
    rows, dim, lengths = [50, 4_000], 8, [0, 7_000, 1, 0, 3, 0, 0, 2_500]  # of two fields and four samples
    generator = torch.Generator().manual_seed(2)
    values = torch.cat([torch.randint(rows[n // 4], (k,), generator=generator) for n, k in enumerate(lengths)]).int()
    offsets = torch.tensor([0, *lengths]).cumsum(0).int()
    gradient = torch.randn(4, 2, dim, generator=generator)
    found = []
    for kernel in KERNELS:
        tables = build_embeddings(rows, dim, learning_rate=0.1, device=torch.device("cpu"), kernel=kernel)
        tables.initialise(torch.Generator().manual_seed(1))
        before = tables.weight.clone()
        pooled = tables(values, offsets)
        for bag in range(8):
            ids = values[offsets[bag] : offsets[bag + 1]].long() + (50 if bag >= 4 else 0)
            torch.testing.assert_close(pooled[bag % 4, bag // 4], before[ids].sum(0), rtol=1e-4, atol=1e-4)
        pooled.backward(gradient)
        found.append((pooled.detach(), tables.weight.clone(), tables.adagrad_sum.clone()))
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            torch.testing.assert_close(one, same, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stochastic", [True, False])
def test_fbgemm_rounds_half_precision_to_nearest_on_processors(stochastic: bool) -> None:
    """Known limit: once another version rounds by chance, tables in fp16 can be built upon it."""
    pytest.importorskip("fbgemm_gpu")
    from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    rows, step = 200, 1e-4  # at most a fifth of the distance from 1 to the number below it in fp16
    kernel = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, 4, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=step,
        eps=0.0,
        weights_precision=SparseType.FP16,
        output_dtype=SparseType.FP32,
        stochastic_rounding=stochastic,
        device=torch.device("cpu"),
    )
    weight, sums = (getattr(kernel, name).detach() for name in ("weights_host", "momentum1_host"))
    weight.fill_(1.0)
    for _ in range(10):
        pooled = kernel(torch.arange(rows), torch.arange(rows + 1))
        pooled.backward(torch.ones_like(pooled))
    assert weight.dtype == torch.float16
    assert sums.dtype == torch.float32
    assert torch.equal(sums[:rows], torch.full((rows,), 10.0))  # it was trained
    assert torch.equal(weight, torch.ones_like(weight))
