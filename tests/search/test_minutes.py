"""The minutes of a search are those of all that is trained for it, over several attempts."""

import json
import math
from pathlib import Path

import pytest

from search.budget import SearchBudget
from search.minutes import BASELINES_SHARE, Minutes, unlimited
from search.used import AROUND, FILE
from shunter.requests import TrainRequest


def used(folder: Path, trials: float, **around: float) -> None:
    (folder / FILE).write_text(json.dumps({"seconds": trials, "joules": 0}))
    (folder / AROUND).write_text(json.dumps(around))


def test_trials_and_the_steps_around_them_share_the_minutes(tmp_path: Path) -> None:
    used(tmp_path, 100.0, baselines=50.0, members=120.0)
    minutes = Minutes.of(TrainRequest(search_minutes=5).search, tmp_path)
    with minutes.counted("members"):
        assert 29 < minutes.left_seconds <= 30
        assert minutes.exhausted() is None
        assert [minutes.room_for(seconds) for seconds in (10.0, 15.5, 31.0, 58.0, 61.0)] == [3, 2, 1, 1, 0]
    assert minutes.around["baselines"] == 50.0
    assert minutes.around["members"] > 120.0
    assert json.loads((tmp_path / AROUND).read_text()) == minutes.around
    trials = SearchBudget(tmp_path, lambda: 0.0, max_seconds=300.0)
    left = trials.left(None).seconds
    assert left is not None
    assert 29 < left <= 30
    assert not trials.time_is_up()


def test_what_is_used_up_ends_trials_and_members_alike(tmp_path: Path) -> None:
    used(tmp_path, 100.0, members=200.5)
    minutes = Minutes.of(TrainRequest(search_minutes=5).search, tmp_path)
    with minutes.counted("members"):
        assert minutes.exhausted() == "The 5 minutes of the search are used up."
        assert minutes.room_for(1.0) == 0
    trials = SearchBudget(tmp_path, lambda: 0.0, max_seconds=300.0)
    assert trials.time_is_up()
    assert trials.exhausted() == "The 5 minutes of the search are used up."


def test_a_failure_within_counts_what_it_took(tmp_path: Path) -> None:
    minutes = Minutes.of(TrainRequest(search_minutes=5).search, tmp_path / "new")
    with pytest.raises(ValueError, match="broken"), minutes.counted("members"):
        raise ValueError("broken")
    assert minutes.around["members"] > 0
    assert Minutes(tmp_path / "new", 300.0).around == minutes.around


def test_baselines_have_their_share(tmp_path: Path) -> None:
    used(tmp_path, 0.0, baselines=300 * BASELINES_SHARE)
    assert Minutes(tmp_path, 300.0).baselines_ended() == "Baselines have had 25% of the 5 minutes."
    assert Minutes(tmp_path, 301.0).baselines_ended() is None


def test_without_minutes_there_is_room_and_nothing_is_written(tmp_path: Path) -> None:
    minutes = Minutes.of(TrainRequest(trials=9).search, tmp_path / "none")
    with minutes.counted("members"):
        assert math.isinf(minutes.room_for(1e9))
        assert minutes.exhausted() is None
        assert minutes.baselines_ended() is None
    assert not (tmp_path / "none").exists()
    assert math.isinf(unlimited().left_seconds)
