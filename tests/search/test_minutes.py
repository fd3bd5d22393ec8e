"""The minutes of a search are those of all that is trained for it, over several attempts."""

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.engine.checkpoint.storage import read_json
from shunter.engine.stopping import StopKind, StopLimit, StopReason
from shunter.requests import TrainRequest
from shunter.search.budget import SearchBudget
from shunter.search.minutes import BASELINES_SHARE, Minutes, unlimited
from shunter.search.used import AROUND, FILE, MOST_OVERHEAD, read_used

FIVE_MINUTES = StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, {"minutes": 5.0})


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
    assert read_json(tmp_path / AROUND) == minutes.around
    trials = SearchBudget(tmp_path, lambda: 0.0, max_seconds=300.0)
    left = trials.left(None).seconds
    assert left is not None
    assert 29 < left <= 30
    assert not trials.time_is_up()


def test_what_is_used_up_ends_trials_and_members_alike(tmp_path: Path) -> None:
    used(tmp_path, 100.0, members=200.5)
    minutes = Minutes.of(TrainRequest(search_minutes=5).search, tmp_path)
    with minutes.counted("members"):
        assert minutes.exhausted() == FIVE_MINUTES
        assert minutes.room_for(1.0) == 0
    trials = SearchBudget(tmp_path, lambda: 0.0, max_seconds=300.0)
    assert trials.time_is_up()
    assert trials.exhausted() == FIVE_MINUTES


def test_a_failure_within_counts_what_it_took(tmp_path: Path) -> None:
    minutes = Minutes.of(TrainRequest(search_minutes=5).search, tmp_path / "new")
    with pytest.raises(ValueError, match="broken"), minutes.counted("members"):
        raise ValueError("broken")
    assert minutes.around["members"] > 0
    assert Minutes(tmp_path / "new", 300.0).around == minutes.around


def test_baselines_have_their_share(tmp_path: Path) -> None:
    used(tmp_path, 0.0, baselines=300 * BASELINES_SHARE)
    share = {"share": BASELINES_SHARE, "minutes": 5.0}
    assert Minutes(tmp_path, 300.0).baselines_ended() == StopReason(StopKind.SHARE, StopLimit.TIME, share)
    assert Minutes(tmp_path, 301.0).baselines_ended() is None


def test_without_minutes_there_is_room_and_nothing_is_written(tmp_path: Path) -> None:
    minutes = Minutes.of(TrainRequest(trials=9).search, tmp_path / "none")
    with minutes.counted("members"):
        assert math.isinf(minutes.room_for(1e9))
        assert minutes.exhausted() is None
        assert minutes.baselines_ended() is None
    assert not (tmp_path / "none").exists()
    assert math.isinf(unlimited().left_seconds)


def test_the_minutes_are_those_of_the_command_and_its_end_is_set_aside(tmp_path: Path) -> None:
    now = [40.0]  # since the process began
    minutes = Minutes(tmp_path, 300.0, lambda: now[0])
    minutes.set_aside(20.0, "by one earlier run")
    now[0] += 5.0
    minutes.keep()
    trials = SearchBudget(tmp_path, lambda: 0.0, max_seconds=300.0)
    left = trials.left(None).seconds
    assert left == pytest.approx(300 - 45 - 20, abs=1)
    trials.reserve(1e9)  # seeds have at most half of what is left beside start and end
    assert trials.reserved_seconds == pytest.approx((300 - 45 - 20) / 2)
    used(tmp_path, 100.0)
    now[0] += 110.0  # ten of them between the trials and what follows
    with minutes.counted("members"):
        assert minutes.command_seconds == pytest.approx(55.0, abs=0.5)
        assert minutes.left_seconds == pytest.approx(300 - 55 - 100 - 20, abs=0.5)
        assert minutes.left_of_command_seconds == pytest.approx(300 - 155 - 20, abs=0.5)


def test_an_attempt_that_goes_on_counts_what_the_former_used(tmp_path: Path) -> None:
    former = Minutes(tmp_path, 300.0, lambda: 60.0)
    former.keep()
    used(tmp_path, 100.0)
    again = Minutes(tmp_path, 300.0, lambda: 10.0)
    assert again.command_seconds == 70.0
    assert again.left_seconds == 300 - 100 - 70


@given(most=st.floats(1, 1e5), command=st.floats(0, 1e6), ending=st.floats(0, 1e6), trials=st.floats(0, 1e5))
def test_trials_have_half_of_the_minutes_however_long_start_and_end_take(
    most: float, command: float, ending: float, trials: float
) -> None:
    with TemporaryDirectory() as folder:
        used(Path(folder), trials)
        minutes = Minutes(Path(folder), most, lambda: command)
        minutes.set_aside(ending, "")
        minutes.keep()
        spared = min(command + ending, MOST_OVERHEAD * most)
        assert minutes.left_seconds == pytest.approx(max(0.0, most - spared - trials), abs=1e-6)
        assert read_used(Path(folder)).most_seconds(most) == pytest.approx(most - spared)
