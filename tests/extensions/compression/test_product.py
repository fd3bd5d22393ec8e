"""Layers as tables: the nearest prototype exactly, whatever rows are beside a row, and tables within their rounding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from shunter.extensions.compression.compressed_linear import ProductLinear, grid_level


def layer_of(inputs: int, outputs: int, options: dict[str, int], seed: int = 0) -> tuple[ProductLinear, Tensor, Tensor]:
    """A layer with drawn prototypes, the table that it was given and the scale of its inputs."""
    generator = torch.Generator().manual_seed(seed)
    form = ProductLinear.empty(nn.Linear(inputs, outputs), **options)
    shape = (form.parts, form.count, form.length)
    prototypes = torch.randint(-form.level, form.level + 1, shape, generator=generator)
    table = torch.randn(form.parts, form.count, outputs, generator=generator)
    scale = torch.rand(inputs, generator=generator) * 20
    return form.fill(scale, prototypes, table), table, scale


@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(1, 20),
    inputs=st.integers(1, 40),
    outputs=st.integers(1, 20),
    options=st.tuples(st.sampled_from([1, 4, 16, 64]), st.sampled_from([2, 16, 64]), st.sampled_from([8, 4])),
)
def test_the_nearest_is_found_exactly_and_a_row_stands_alone(
    rows: int, inputs: int, outputs: int, options: tuple[int, int, int]
) -> None:
    length, count, bits = options
    form, table, scale = layer_of(inputs, outputs, {"length": length, "prototypes": count, "bits": bits})
    values = torch.randn(rows, inputs, generator=torch.Generator().manual_seed(1)) * 4
    grid = (values * scale).round().clamp(-form.level, form.level)
    parts = nn.functional.pad(grid, (0, form.parts * length - inputs)).view(rows, form.parts, 1, length).double()
    nearest = (parts - form.prototypes.double()).square().sum(3).argmin(2)
    found = form.numbers(values).t() - count * torch.arange(form.parts)
    assert torch.equal(found.long(), nearest)
    result = form(values)
    assert torch.equal(form(values[-1:]), result[-1:])
    exact = table[torch.arange(form.parts), nearest].sum(1)
    step = (table.amax(2) - table.amin(2)).amax() / (2**bits - 1)
    # Half a step for each part; scales and biases of 4 bits are themselves of 16 bits, which keep 11.
    bound = form.parts * (step / 2 + (0 if bits == 8 else table.abs().amax() * 2**-9))
    assert ((result - exact).abs() <= bound + 1e-4).all()


@given(length=st.integers(1, 256), count=st.sampled_from([2, 4, 8, 16, 32, 64]))
def test_the_largest_distance_is_exact_in_float32(length: int, count: int) -> None:
    level = grid_level(length, count)
    assert level >= 1
    assert count * 3 * level**2 * length + count <= 2**24


def test_rows_of_nothing_and_of_nan_and_more_dimensions() -> None:
    form, _, _ = layer_of(10, 3, {"length": 4, "prototypes": 4, "bits": 4})
    assert form(torch.zeros(0, 10)).shape == (0, 3)
    assert form(torch.rand(2, 5, 10)).shape == (2, 5, 3)
    values = torch.rand(3, 10)
    values[1, 9] = torch.nan
    assert form(values).isnan().any(1).tolist() == [False, True, False]
    assert form(torch.full((1, 10), torch.inf)).isfinite().all()


def test_what_is_loaded_later_counts() -> None:
    first, second = (layer_of(10, 3, {"length": 4, "prototypes": 4, "bits": 8}, seed)[0] for seed in (1, 2))
    values = torch.randn(6, 10)
    first(values)  # prepares its prototypes
    first.load_state_dict(second.state_dict())
    assert torch.equal(first(values), second(values))


@pytest.mark.parametrize(
    "options",
    [
        {"length": 4, "prototypes": 16},
        {"length": 0, "prototypes": 16, "bits": 8},
        {"length": 4, "prototypes": 12, "bits": 8},
        {"length": 4, "prototypes": 16, "bits": 7},
        {"length": 10**9, "prototypes": 16, "bits": 8},
        {"length": 4, "prototypes": 2**40, "bits": 8},
    ],
)
def test_forms_that_do_not_exist_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="product-quantised layer"):
        ProductLinear.empty(nn.Linear(8, 8), **options)
