"""Rows in few bits: close, and closer than by the whole range where there are outliers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.checkpoint.quantise import (
    NARROWEST,
    RANGE_STEPS,
    QuantisedRows,
    bytes_of_row,
    quantise_rows,
    restore_rows,
)
from shunter.errors import CheckpointError

BITS = [2, 3, 4, 8]


def back(rows: torch.Tensor, bits: int) -> torch.Tensor:
    return restore_rows(quantise_rows(rows, bits), bits, rows.shape[1])


@st.composite
def tables(draw: st.DrawFn) -> torch.Tensor:
    rows, width = draw(st.integers(1, 5)), draw(st.integers(1, 19))
    numbers = st.floats(-1e4, 1e4, width=32, allow_subnormal=False)
    values = draw(st.lists(numbers, min_size=rows * width, max_size=rows * width))
    return torch.tensor(values).view(rows, width) * draw(st.sampled_from([1.0, 1e-4, 1e-9]))


@settings(deadline=None, max_examples=30)
@given(table=tables())
def test_eight_bits_err_by_half_a_step_at_most(table: torch.Tensor) -> None:
    spread = table.amax(1, keepdim=True) - table.amin(1, keepdim=True)
    # The bias lies up to a part in 128 of the row's smallest number below it, which the steps have to cover too.
    reach = spread + table.abs().amax(1, keepdim=True) / 64
    assert ((back(table, 8) - table).abs() <= reach / 255 * 0.51 + 1e-37).all()


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_outliers_cost_less_than_by_the_whole_range(bits: int) -> None:
    torch.manual_seed(0)
    rows = torch.randn(64, 32)
    rows[:, 3] *= 8
    levels = (1 << bits) - 1
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    scale = (high - low) / levels
    plain = low + ((rows - low) / scale).round() * scale
    assert (back(rows, bits) - rows).square().sum() < 0.9 * (plain - rows).square().sum()


def searched_one_by_one(row: torch.Tensor, bits: int) -> float:
    """The squared error of the greedy search, in double precision and as it is told: one row, one step, two sides."""

    def error(low: float, high: float) -> float:
        scale = (high - low) / levels
        codes = ((row - low) / scale).round().clamp(0, levels)
        return float((codes * scale + low - row).square().sum())

    row, levels = row.double(), (1 << bits) - 1
    low, high = float(row.min()), float(row.max())
    step = (high - low) / RANGE_STEPS
    least = error(low, high)
    for _ in range(round(RANGE_STEPS * (1 - NARROWEST[bits]))):
        left, right = error(low + step, high), error(low, high - step)
        low, high = (low + step, high) if left <= right else (low, high - step)
        least = min(least, left, right)
    return least


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_the_search_over_many_rows_finds_what_one_row_by_itself_does(bits: int) -> None:
    torch.manual_seed(1)
    rows = torch.randn(40, 12) * torch.rand(40, 1)
    rows[:, 5] *= 6
    found = (back(rows, bits) - rows).double().square().sum(1)
    expected = torch.tensor([searched_one_by_one(row, bits) for row in rows], dtype=torch.double)
    # Scale and bias are rounded to bfloat16 afterwards, which moves single rows either way.
    assert float(found.sum()) == pytest.approx(float(expected.sum()), rel=0.02)
    assert float((found / expected).max()) < 1.25


@pytest.mark.parametrize("bits", BITS)
def test_alike_numbers_and_zeros(bits: int) -> None:
    rows = torch.tensor([[0.0] * 5, [-2.5] * 5])
    assert torch.equal(back(rows, bits), rows)
    two = torch.tensor([[1.0, 0, 0, 0, 1.0]])
    torch.testing.assert_close(back(two, bits), two, rtol=1 / 128, atol=0)


@pytest.mark.parametrize("bits", BITS)
def test_a_row_takes_the_bytes_that_are_named(bits: int) -> None:
    for width in (1, 7, 8, 16, 19):
        stored = quantise_rows(torch.randn(3, width), bits)
        assert stored.codes.shape == (3, bytes_of_row(width, bits))
        assert bytes_of_row(width, bits) <= -(-width * bits // 8) + 2


def test_rows_of_another_width_are_refused() -> None:
    stored = quantise_rows(torch.randn(3, 16), 4)
    with pytest.raises(CheckpointError, match="another model"):
        restore_rows(stored, 4, 24)
    with pytest.raises(CheckpointError, match="another model"):
        restore_rows(QuantisedRows(stored.codes, stored.scale[:2], stored.bias), 4, 16)
