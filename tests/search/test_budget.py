"""What a search may use: over several attempts, in seconds and joules."""

from pathlib import Path

import pytest

from shunter.engine.stopping import StopKind, StopLimit, StopReason
from shunter.search.minutes import FILE, BudgetMeter, Minutes
from shunter.search.protocol import BudgetLeft
from tests.engine.reasons import HandClock


def budget(
    directory: Path,
    joules: float | None = 0.0,
    *,
    trials: float = 0.0,
    max_seconds: float | None = None,
    max_kwh: float | None = None,
) -> BudgetMeter:
    minutes = Minutes(HandClock(trials=trials), max_seconds)
    return BudgetMeter(directory, minutes, lambda: joules, max_kwh=max_kwh)


def test_without_a_budget_nothing_ends_the_search(tmp_path: Path) -> None:
    one = budget(tmp_path)
    assert one.exhausted() is None
    assert one.share == 0
    assert one.left(7) == BudgetLeft(trials=7)


def test_the_energy_of_an_earlier_attempt_counts(tmp_path: Path) -> None:
    budget(tmp_path, joules=30.0).save()
    second = budget(tmp_path, joules=20.0, max_seconds=3_600, max_kwh=50 / 3.6e6)
    assert second.joules == 50.0
    assert second.left(None) == BudgetLeft(seconds=3_600, joules=0.0)
    assert second.share == pytest.approx(1.0)
    assert second.exhausted() == StopReason(StopKind.SEARCH_BUDGET, StopLimit.ENERGY, {"kwh": 50 / 3.6e6})


def test_time_is_up(tmp_path: Path) -> None:
    one = budget(tmp_path, trials=61.0, max_seconds=60)
    assert one.exhausted() == StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, {"minutes": 1})
    assert one.time_is_up()
    other = budget(tmp_path, trials=60.0, max_seconds=120)
    assert (other.exhausted(), other.time_is_up(), other.share) == (None, False, 0.5)


def test_energy_that_nobody_can_watch_is_no_budget(tmp_path: Path) -> None:
    reason = budget(tmp_path, joules=None, max_kwh=1.0).exhausted()
    assert reason is not None
    assert (reason.kind, reason.limit) == (StopKind.SEARCH_BUDGET, StopLimit.ENERGY)
    assert "unavailable" in reason.details


@pytest.mark.parametrize("text", ["", "{", '{"joules": "x"}', "[]"])
def test_a_damaged_note_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert budget(tmp_path, joules=5.0).joules == 5.0
