"""Figures as text: units, and how much more or less one needs than another."""

import pytest

from shunter.planner.explain.cells import format_difference


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.0822, "8.2% more"), (0.983, "1.7% less"), (1.0, "as much"), (0.9999, "as much")]
)
def test_a_difference_has_the_sign_of_the_table(ratio: float, text: str) -> None:
    assert format_difference(ratio) == text
