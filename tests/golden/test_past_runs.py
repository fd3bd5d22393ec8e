"""Runs of before the move are read as they were: by the history, the list, the report and later searches."""

from pathlib import Path

from tests.golden import past_runs
from tests.golden.recorded import assert_near, plain, read

TOLERANCE = 1e-6


def test_past_runs_teach_and_show_what_they_did(tmp_path: Path) -> None:
    found, expected = plain(past_runs.read_in_new_store(tmp_path)), read(past_runs.READ)
    assert expected["history"]["steps"]
    assert expected["studies"]
    assert_near(found, expected, "past runs", TOLERANCE)


def test_what_is_recorded_stays_small() -> None:
    assert past_runs.recorded_bytes() < 1_500_000
