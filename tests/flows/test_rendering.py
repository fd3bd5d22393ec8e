"""Numbers have three significant digits and a unit; tables are data until they are printed."""

import io

import pytest

from shunter.flows.command.rendering import TextTable, duration, energy, number, print_table
from shunter.masked_console import Console


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123456, "0.0123"), (9.876, "9.88"), (54.6, "54.6"), (1234.5, "1,230"), (None, "")]
)
def test_a_number_has_three_significant_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_time_and_energy_choose_their_unit() -> None:
    assert [duration(seconds) for seconds in (54.2, 238.0, 9000.0)] == ["54.2 s", "3.97 min", "2.5 h"]
    assert energy(835.4, "estimated") == "~835 J"
    assert energy(7.2e6) == "2 kWh"


def test_cells_are_printed_as_they_are_and_numbers_to_the_right() -> None:
    text = io.StringIO()
    console = Console(file=text, width=60)
    print_table(console, TextTable(("name", "rows"), [("[red]a", "7"), ("b", "1,234")]))
    print_table(console, TextTable(("name",), []))
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert lines == ["name     rows", "[red]a      7", "b       1,234"]
