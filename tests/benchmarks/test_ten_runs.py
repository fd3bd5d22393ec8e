"""Regret is counted against the best fixed choice, and limits by what the whole command took."""

import pytest

from benchmarks.ten_runs import PRICE_PER_HOUR, Run, coverage, is_kept, limits_of, read_run, regrets

SUMMARY = {
    "predicted": {"seconds_interval": [20.0, 40.0], "level": 0.8},
    "step_seconds": {"tune": 30.0, "train": 5.0, "card": 1.0},
    "limit_reached": {"kind": "limit", "limit": "time"},
    "energy": {"joules": 100.0},
    "placement": {"batch_size": 512, "threads": 1},
    "trials": {"complete": 4},
    "quality": {"test": {"auc": 0.7}},
}


def took(seconds: float, **figures: float) -> Run:
    return Run(0, seconds, **figures)  # pyright: ignore[reportArgumentType]


def test_a_run_is_read_from_what_the_command_prints() -> None:
    run = read_run(SUMMARY, 50.0)
    assert (run.wall_seconds, run.work_seconds, run.batch_size, run.limit_reached) == (50.0, 35.0, 512, "time")
    nothing = {"predicted": {"seconds_interval": None, "level": None}, "limit_reached": None}
    assert read_run({**SUMMARY, **nothing}, 50.0).interval_level is None


def test_regret_is_what_all_runs_took_beyond_the_best_fixed_choice() -> None:
    found = regrets([took(80), took(100), took(60)], best_fixed_seconds=60)
    assert found == pytest.approx({"worst_over_first": 1.25, "cumulative_regret": 1 / 3, "tenth_regret": 0.0})


def test_limits_are_shares_of_the_last_run_and_started_minutes_are_billed() -> None:
    limits = limits_of(took(100, joules=200), (0.5, 0.7))
    assert [(kind, bound) for kind, bound, _ in limits] == [
        ("time", 50.0),
        ("energy", 100.0),
        ("cost by exact", pytest.approx(50 * PRICE_PER_HOUR / 3600)),
        ("time", pytest.approx(70.0)),
        ("energy", pytest.approx(140.0)),
        ("cost by minute", pytest.approx(120 * PRICE_PER_HOUR / 3600)),
    ]
    minute = limits[-1][1]
    assert is_kept("cost by minute", minute, took(119))
    assert not is_kept("cost by minute", minute, took(121))
    assert is_kept("time", 50.0, took(50.9))
    assert not is_kept("time", 50.0, took(51.1))
    assert not is_kept("time", 50.0, Run(1, 3.0)), "nothing was trained"
    assert not is_kept("energy", 100.0, took(3.0)), "unknown"


def test_only_stated_intervals_are_counted() -> None:
    inside, outside = ({"interval_level": 0.8, "low_seconds": low, "high_seconds": 9.0} for low in (1.0, 6.0))
    runs = [took(9, work_seconds=5.0, **figures) for figures in (inside, outside)]
    assert coverage([*runs, took(9)], 0.8) == 0.5
    assert coverage([took(9)], 0.8) is None
