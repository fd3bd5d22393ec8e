"""Carbon intensity: one number, or one by the hour, averaged over the hours that the work takes."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import RequestError
from shunter.hardware.cost.grid import Grid


def write(folder: Path, figures: dict[int, object]) -> str:
    path = folder / "grid.csv"
    path.write_text("hour,grams_per_kwh\n" + "".join(f"{hour},{value}\n" for hour, value in figures.items()))
    return str(path)


def test_a_number_holds_at_every_hour() -> None:
    grid = Grid.read("385.5")
    assert grid.mean_grams_per_kwh([0.0, 0.1, 30.0]) == pytest.approx([385.5] * 3)


def test_a_file_is_averaged_over_the_hours_of_the_work_from_its_beginning_on(tmp_path: Path) -> None:
    path = write(tmp_path, {hour: 100 if hour < 12 else 500 for hour in range(24)})
    grid = Grid.read(path, datetime(2026, 3, 1, 11, 0, tzinfo=UTC))
    assert grid.mean_grams_per_kwh([1.0, 2.0, 24.0, 48.0]) == pytest.approx([100, 300, 300, 300])
    assert grid.mean_grams_per_kwh([14.0]) == pytest.approx([(1 * 100 + 12 * 500 + 1 * 100) / 14]), "over midnight"
    elsewhere = datetime(2026, 3, 1, 13, 0, tzinfo=timezone(timedelta(hours=2)))
    assert Grid.read(path, elsewhere) == grid, "hours are those of UTC"


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (dict.fromkeys(range(23), 1), "23 is missing"),
        (dict.fromkeys(range(25), 1), "24 is none"),
        (dict.fromkeys(range(24), "much"), "both of numbers"),
        (dict.fromkeys(range(24), -1), "at least 0"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_reason(
    tmp_path: Path, figures: dict[int, object], words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        Grid.read(write(tmp_path, figures))


@pytest.mark.parametrize("text", ["nan", "-3", "nowhere.csv"])
def test_neither_a_number_nor_a_file(text: str) -> None:
    with pytest.raises(RequestError, match="--grid"):
        Grid.read(text)


@given(
    st.lists(st.floats(0, 2000), min_size=24, max_size=24),
    st.floats(0, 23.99),
    st.floats(0.01, 200),
    st.floats(0.01, 5),
)
def test_two_stretches_emit_what_they_emit_together(
    figures: list[float], start: float, first: float, second: float
) -> None:
    grid = Grid(grams_per_kwh=tuple(figures), start_hour=start)
    later = Grid(grams_per_kwh=tuple(figures), start_hour=(start + first) % 24)
    parts = grid.mean_grams_per_kwh([first]) * first + later.mean_grams_per_kwh([second]) * second
    whole = grid.mean_grams_per_kwh([first + second]) * (first + second)
    assert np.allclose(parts, whole, rtol=1e-6, atol=1e-6)
