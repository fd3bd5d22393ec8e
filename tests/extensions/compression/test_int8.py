"""Layers in 8 bits: near to what they were, and the same for a row whatever rows are beside it."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from shunter.extensions.compression import compressed_linear
from shunter.extensions.compression.compressed_linear import Int8Linear


def layer(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    torch.manual_seed(inputs + outputs)
    return nn.Linear(inputs, outputs, bias=bias)


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 40),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 70),
    is_signed=st.booleans(),
    size=st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_error_is_within_the_rounding_and_a_row_stands_alone(
    rows: int, inputs: int, outputs: int, is_signed: bool, size: float
) -> None:
    linear = layer(inputs, outputs, bias=bool(rows % 2))
    form = Int8Linear.of(linear, is_signed=is_signed)
    values = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(rows)) * size
    values = values if is_signed else values.relu()
    with torch.no_grad():
        exact, near = linear(values), form(values)
        # Half a level of each factor: |x w - x' w'| <= |w| unit / 2 + |x'| scale / 2, and |x'| <= |x| + unit / 2.
        unit = values.abs().amax(1, keepdim=True) / (63 if is_signed else 127)
        weight, scale = linear.weight.abs().sum(1), form.scale
        bound = unit / 2 * weight + (values.abs().sum(1, keepdim=True) + inputs * unit / 2) * scale / 2
        rounding = 1e-5 * size + 1e-6 * exact.abs()  # of float32, also where the bias is far larger than the product
        assert ((exact - near).abs() <= 1.01 * bound + rounding).all()
        torch.testing.assert_close(form(values[-1:]), near[-1:], rtol=0, atol=0)


@pytest.mark.parametrize("is_signed", [True, False])
def test_without_the_kernel_the_products_are_the_same(is_signed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    form = Int8Linear.of(layer(96, 48), is_signed=is_signed)
    values = torch.randn(33, 96).relu()
    expected = form(values)
    monkeypatch.setattr(compressed_linear, "_has_kernel", lambda: False)
    torch.testing.assert_close(form(values), expected, rtol=1e-6, atol=1e-6)


def test_rows_of_zeros_none_and_more_dimensions() -> None:
    linear = layer(40, 8)
    form = Int8Linear.of(linear, is_signed=False)
    torch.testing.assert_close(form(torch.zeros(3, 40)), linear.bias.detach().expand(3, 8))
    assert form(torch.zeros(0, 40)).shape == (0, 8)
    assert form(torch.rand(2, 5, 40)).shape == (2, 5, 8)
    assert form(torch.full((1, 40), torch.nan)).isnan().all()


def test_weights_that_are_loaded_later_count() -> None:
    first, second = (Int8Linear.of(layer(40, width), is_signed=True) for width in (8, 8))
    second.weight.neg_()
    values = torch.randn(4, 40)
    first(values)  # packs its weights
    copied = copy.deepcopy(first)
    first.load_state_dict(second.state_dict())
    torch.testing.assert_close(first(values), second(values), rtol=0, atol=0)
    assert not torch.equal(copied(values), first(values))
