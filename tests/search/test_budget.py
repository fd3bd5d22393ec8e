"""What a search may use: over several attempts, in seconds and joules."""

import json
from pathlib import Path

import pytest

from shunter.engine.stopping import StopKind, StopLimit, StopReason
from shunter.search.budget import SearchBudget
from shunter.search.protocol import BudgetLeft
from shunter.search.used import FILE


def budget(directory: Path, joules: float | None = 0.0, **most: float) -> SearchBudget:
    return SearchBudget(directory, lambda: joules, **most)


def test_without_a_budget_nothing_ends_the_search(tmp_path: Path) -> None:
    one = budget(tmp_path)
    assert one.exhausted() is None
    assert one.share == 0
    assert one.left(7) == BudgetLeft(trials=7)


def test_what_an_earlier_attempt_used_counts(tmp_path: Path) -> None:
    first = budget(tmp_path, joules=30.0)
    first.save()
    second = budget(tmp_path, joules=20.0, max_seconds=3_600, max_joules=50.0)
    assert second.joules == 50.0
    assert second.seconds >= json.loads((tmp_path / FILE).read_text())["seconds"] >= 0
    left = second.left(None)
    assert left.joules == 0
    assert left.seconds is not None
    assert left.seconds <= 3_600
    reason = second.exhausted()
    assert reason == StopReason(StopKind.SEARCH_BUDGET, StopLimit.ENERGY, {"kwh": 50 / 3.6e6})


def test_time_is_up(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"seconds": 61, "joules": 0}')
    assert budget(tmp_path, max_seconds=60).exhausted() == StopReason(
        StopKind.SEARCH_BUDGET, StopLimit.TIME, {"minutes": 1}
    )
    assert budget(tmp_path, max_seconds=120).exhausted() is None


def test_trials_end_as_early_as_the_trainings_after_them_need(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"seconds": 600, "joules": 0}')
    one = budget(tmp_path, max_seconds=1200)
    one.reserve(540)
    assert one.exhausted() is None
    assert one.share == pytest.approx(600 / 660, rel=0.01)
    left = one.left(None).seconds
    assert left is not None
    assert 0 < left <= 60
    one.reserve(10_000)  # the trials keep half
    details = {"minutes": 20, "reserved_minutes": 10}
    assert one.exhausted() == StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, details)
    budget(tmp_path).reserve(60)  # without a time there is nothing to leave


def test_energy_that_nobody_can_watch_is_no_budget(tmp_path: Path) -> None:
    reason = budget(tmp_path, joules=None, max_joules=1e9).exhausted()
    assert reason is not None
    assert (reason.kind, reason.limit) == (StopKind.SEARCH_BUDGET, StopLimit.ENERGY)
    assert "unavailable" in reason.details


@pytest.mark.parametrize("text", ["", "{", '{"seconds": "x"}', "[]"])
def test_a_damaged_note_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert budget(tmp_path, joules=5.0).joules == 5.0
