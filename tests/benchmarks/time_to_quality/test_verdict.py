"""From two rows to ratios: the target is the rival's own best, and never reaching it is said."""

import pytest

from benchmarks.time_to_quality.benchmark import BusyMachineError, headline, merged, refuse_on_a_loaded_machine
from benchmarks.time_to_quality.contests import CONTESTS
from benchmarks.time_to_quality.verdict import verdict


def row(*points: tuple[float, float], test: float, seconds: float) -> dict:
    return {
        "points": [{"seconds": at, "joules": 10 * at, "quality": quality} for at, quality in points],
        "test": test,
        "seconds": seconds,
    }


RIVAL = row((20, 0.97), (40, 0.984), (60, 0.985), test=0.984, seconds=80)


def test_time_until_the_quality_of_the_rival_and_not_until_the_end() -> None:
    ours = row((10, 0.98), (15, 0.9846), (90, 0.985), test=0.9845, seconds=100)

    assert verdict(RIVAL, ours) == {
        "time_ratio": 4.0,
        "energy_ratio": 4.0,
        "shared_time_ratio": 4.0,
        "whole_time_ratio": 0.8,
        "quality_gap": 0.0005,
    }


def test_a_quality_that_was_never_reached_has_no_time_but_the_lesser_of_both_has() -> None:
    ours = row((10, 0.984), test=0.983, seconds=40)

    found = verdict(RIVAL, ours)

    assert found["time_ratio"] is None
    assert found["energy_ratio"] is None
    assert found["shared_time_ratio"] == 4.0
    assert found["quality_gap"] == -0.001


def test_rows_merge_and_only_contests_with_both_sides_are_in_the_headline() -> None:
    key = next(iter(CONTESTS))
    known = {"rivals": {key: {"seconds": 1}}, "not_installed": {"other": "no wheel"}}
    details = merged(known, {"rivals": {key: RIVAL}, "shunter": {}})

    assert details["rivals"] == {key: RIVAL}
    assert details["not_installed"] == {"other": "no wheel"}
    assert headline(details) == {}
    assert headline(merged(details, {"shunter": {key: RIVAL}}))[f"{key}_time_ratio"] == 1.0


def test_a_busy_machine_is_refused_and_told_what_to_do() -> None:
    refuse_on_a_loaded_machine(0.05, "while it ran")
    with pytest.raises(BusyMachineError, match="--loaded"):
        refuse_on_a_loaded_machine(0.4, "while it ran")
