"""Cutting into blocks, sharing them out, and inverse roots."""

from itertools import pairwise
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import TrainingError
from shunter.extensions.shampoo.blocks import assign_greedily, lay_out, merge_dimensions, root_operations, split_blocks
from shunter.extensions.shampoo.direction import inverse_root

shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
limits = st.integers(1, 40)


@pytest.mark.parametrize(
    ("shape", "limit", "merged"),
    [
        ((32, 3, 64, 64), 8192, (96, 4096)),
        ((512, 13), 1024, (512, 13)),
        ((16, 13), 1024, (208,)),
        ((1, 256), 1024, (256,)),
        ((5000, 3), 1024, (5000, 3)),
        ((), 1024, (1,)),
        ((1, 1), 1024, (1,)),
        ((0, 4), 1024, (0,)),
    ],
)
def test_small_dimensions_are_merged_from_the_last_to_the_first(shape, limit, merged):
    assert merge_dimensions(shape, limit) == merged


@given(shapes, limits)
def test_merging_keeps_the_elements_and_joins_only_up_to_the_limit(shape, limit):
    merged = merge_dimensions(shape, limit)
    assert prod(merged) == prod(shape)
    assert all(size <= max(limit, *shape, 1) for size in merged)
    assert all(left * right > limit for left, right in pairwise(merged))


@given(shapes, limits)
def test_each_element_lies_in_exactly_one_block(shape, limit):
    blocks = split_blocks(torch.arange(prod(shape)).reshape(shape), limit)
    elements = [element for block in blocks for element in block.flatten().tolist()]
    assert sorted(elements) == list(range(prod(shape)))
    assert all(size <= limit for block in blocks for size in block.shape)
    assert all(block.numel() for block in blocks)


def test_blocks_are_views_of_the_parameter():
    parameter = torch.zeros(70, 33)
    for number, block in enumerate(split_blocks(parameter, 16)):
        block.fill_(number)
    assert parameter.unique().numel() == 5 * 3


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 8))
def test_greedy_assignment_loads_no_bin_by_more_than_one_item_above_the_mean(costs, bins):
    loads = [0.0] * bins
    chosen = assign_greedily(costs, loads)
    assert [sum(cost for cost, bin_ in zip(costs, chosen, strict=True) if bin_ == i) for i in range(bins)] == loads
    assert max(loads) <= sum(costs) / bins + max(costs, default=0)


def group(parameters, **options):
    return {"params": parameters, "max_block_size": 16, "root_every_steps": 5, "stagger": True, **options}


@given(st.integers(1, 6))
@settings(max_examples=6)
def test_slots_and_earlier_blocks_do_not_depend_on_ranks_or_later_groups(ranks):
    first, second = group([torch.zeros(70, 33)]), group([torch.zeros(40), torch.zeros(20, 20)])
    alone, with_ranks, both = lay_out([first], 1), lay_out([first], ranks), lay_out([first, second], ranks)
    assert [block.slot for block in alone] == [block.slot for block in with_ranks]
    assert [(block.slot, block.owner) for block in both[: len(alone)]] == [
        (block.slot, block.owner) for block in with_ranks
    ]
    assert {block.owner for block in both} == set(range(ranks))


def test_slots_spread_the_cost_of_roots_over_the_steps():
    blocks = lay_out([group([torch.zeros(64, 64)], root_every_steps=4)], 1)
    costs = [sum(root_operations(block.shape) for block in blocks if block.slot == slot) for slot in range(4)]
    assert len(set(costs)) == 1
    assert {block.slot for block in lay_out([group([torch.zeros(64, 64)], stagger=False)], 1)} == {0}


@pytest.mark.parametrize("exponent", [1 / 2, 1 / 4, 1 / 6])
def test_inverse_root_raised_back_is_the_inverse(exponent):
    factor = torch.randn(24, 60, generator=torch.Generator().manual_seed(0))
    matrix = factor @ factor.mT / 60
    root = inverse_root(matrix, exponent, 1e-6)
    back = torch.linalg.matrix_power(root.double(), round(1 / exponent)) @ (matrix.double() + 1e-6 * torch.eye(24))
    assert (back - torch.eye(24)).abs().max() < 1e-4


def test_inverse_root_shifts_negative_eigenvalues_to_epsilon():
    matrix = torch.diag(torch.tensor([4.0, -1e-3], dtype=torch.float64))
    expected = np.diag([(4 + 1e-3 + 1e-2) ** -0.5, 1e-2**-0.5])
    np.testing.assert_allclose(inverse_root(matrix, 0.5, 1e-2).numpy(), expected, rtol=1e-12)


def test_inverse_root_shifts_by_a_share_of_the_largest_eigenvalue():
    matrix = torch.diag(torch.tensor([4.0, 0.0], dtype=torch.float64))
    expected = np.diag([4.5**-0.5, 0.5**-0.5])
    np.testing.assert_allclose(inverse_root(matrix, 0.5, 0.1, 0.1).numpy(), expected, rtol=1e-12)


def test_inverse_root_goes_on_in_float64_where_an_eigenvalue_overflows_float32():
    matrix = torch.full((2, 2), 3e38)
    assert not torch.isfinite(torch.linalg.eigvalsh(matrix)).all()
    root = inverse_root(matrix, 0.5, 1.0)
    assert root.dtype == torch.float32
    # Eigenvalues 6e38 along (1, 1) and 0 along (1, -1), so the root is half of (1, -1; -1, 1).
    np.testing.assert_allclose(root.numpy(), [[0.5, -0.5], [-0.5, 0.5]], atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_inverse_root_of_a_factor_that_is_not_finite_is_a_clear_error(bad):
    matrix = torch.eye(3)
    matrix[1, 1] = bad
    with pytest.raises(TrainingError, match="factor of size 3 holds NaN or infinity"):
        inverse_root(matrix, 0.25, 1e-12)


def test_inverse_root_that_overflows_even_in_float64_is_a_clear_error():
    with pytest.raises(TrainingError, match="1e-200"):
        inverse_root(torch.zeros(2, 2, dtype=torch.float64), 2.0, 1e-200)


def test_slots_of_few_blocks_are_spread_over_any_number_of_steps():
    blocks = lay_out([group([torch.zeros(64, 16)], root_every_steps=10**12)], 1)
    assert sorted(block.slot for block in blocks) == [0, 25 * 10**10, 50 * 10**10, 75 * 10**10]
