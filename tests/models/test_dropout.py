"""Dropout by numbers of 16 bits drops what it should, as often as it should."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from shunter.models.dropout import STEPS, Dropout, dropout

VALUES = 1_000_000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("share", [1e-4, 0.1, 0.5, 0.9])
def test_each_value_is_dropped_with_its_probability_and_the_mean_stays(share: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    found = dropout(torch.ones(VALUES, dtype=dtype), share).double()
    spread = math.sqrt(share * (1 - share) * VALUES)
    assert abs((found == 0).sum().item() - share * VALUES) < 4 * spread
    [kept] = found[found != 0].unique().tolist()
    assert kept == pytest.approx(1 / (1 - share), rel=torch.finfo(dtype).eps + 1 / STEPS / (1 - share))


def test_values_that_share_a_draw_are_dropped_independently() -> None:
    torch.manual_seed(1)
    dropped = dropout(torch.ones(VALUES), 0.3).reshape(-1, 4) == 0
    patterns = (dropped.long() * torch.tensor([1, 2, 4, 8])).sum(dim=1).bincount(minlength=16).double()
    ones = torch.tensor([bin(number).count("1") for number in range(16)])
    expected = len(dropped) * 0.3**ones * 0.7 ** (4 - ones)
    chi_squared = ((patterns - expected) ** 2 / expected).sum().item()
    assert chi_squared < 37.7, "one in a thousand of 15 degrees of freedom is above"


@given(shape=st.lists(st.integers(0, 7), min_size=1, max_size=3), share=st.floats(0, 1))
def test_gradients_pass_where_values_do(shape: list[int], share: float) -> None:
    values = torch.ones(shape, requires_grad=True)
    found = dropout(values, share)
    assert found.shape == values.shape
    if found.numel():
        found.sum().backward()
        assert values.grad is not None
        assert torch.equal(values.grad, found.detach())


def test_it_is_drawn_from_torchs_generator_and_only_while_training() -> None:
    module, values = Dropout(0.5), torch.randn(5, 7)
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(module(values))
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], module(values))
    assert module.eval()(values) is values


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_and_everything_are_those_of_torch(share: float) -> None:
    values = torch.randn(9)
    assert torch.equal(Dropout(share)(values), nn.Dropout(share)(values))


def test_compiled_layers_draw_by_their_own_kernels() -> None:
    torch.manual_seed(0)
    found = torch.compile(Dropout(0.25), backend="eager")(torch.ones(VALUES))
    torch.manual_seed(0)
    assert torch.equal(found, nn.functional.dropout(torch.ones(VALUES), 0.25))
