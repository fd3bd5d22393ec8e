"""A machine that became slower is noticed and dated; a single wild figure is not taken for it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.planner.history.drift import inspect


def steady(count: int, seed: int, level: float = 0.0, noise: float = 0.03) -> list[float]:
    return (level + noise * np.random.default_rng(seed).standard_normal(count)).tolist()


def days(count: int, seed: int, *, day: float, ratio: float = 1.0, since: int = 0) -> tuple[list, list, list]:
    """Eight figures of a dozen configurations each day, which share what the day does to the machine."""
    random = np.random.default_rng(seed)
    base = random.standard_normal(12)
    values, names, sessions = [], [], []
    for number in range(count):
        shift = day * random.standard_normal() + (np.log(ratio) if number >= since else 0.0)
        for name in random.choice(12, 8, replace=False):
            values.append(base[name] + shift + 0.05 * random.standard_normal())
            names.append(int(name))
            sessions.append(number)
    return values, names, sessions


def test_steady_machine_has_one_level() -> None:
    found = [inspect(steady(40, seed), ["job"] * 40) for seed in range(50)]
    assert sum(len(inspection.levels) > 1 for inspection in found) <= 5
    assert sum(len(inspection.outliers) for inspection in found) <= 4


def test_days_that_differ_are_no_change() -> None:
    """Each figure for itself is many deviations off on a bad day; the day is one figure."""
    changed = [len(inspect(*days(30, seed, day=0.10)).levels) > 1 for seed in range(40)]
    assert sum(changed) <= 10
    alone = [len(inspect(*days(30, seed, day=0.10)[:2]).levels) > 1 for seed in range(40)]
    assert sum(alone) > 2 * sum(changed)


def test_slow_down_is_noticed_within_a_few_days() -> None:
    noticed = []
    for seed in range(30):
        values, names, sessions = days(20, seed, day=0.05, ratio=1.3, since=15)
        until = len([session for session in sessions if session < 18])
        found = inspect(values[:until], names[:until], sessions[:until])
        noticed.append(found.levels[-1].log_ratio > 0.1)
    assert sum(noticed) >= 27


@pytest.mark.parametrize("ratio", [2.0, 1.3, 0.6])
def test_change_is_found_and_dated(ratio: float) -> None:
    change = float(np.log(ratio))
    for seed in range(10):
        found = inspect(steady(15, seed) + steady(10, seed + 100, change), ["job"] * 25)
        last = found.levels[-1]
        assert 14 <= last.start <= 17
        assert last.log_ratio == pytest.approx(change, abs=0.1)


def test_change_shows_across_configurations_that_differ_among_themselves() -> None:
    base = {"small": -5.0, "large": -2.0, "wide": -3.5}
    names = [*base] * 8
    times = [
        base[name] + noise + (0.5 if index >= 12 else 0.0)
        for index, (name, noise) in enumerate(zip(names, steady(24, 1), strict=True))
    ]
    found = inspect(times, names)
    assert found.levels[-1].start == pytest.approx(12, abs=1)
    assert inspect([base[name] for name in names], names).levels[1:] == ()


@settings(max_examples=25)
@given(place=st.integers(5, 18), size=st.floats(0.7, 5), seed=st.integers(0, 1000))
def test_single_wild_figure_is_an_outlier_and_no_change(place: int, size: float, seed: int) -> None:
    times = steady(20, seed, noise=0.01)
    times[place] += size
    found = inspect(times, ["job"] * 20)
    assert found.outliers == (place,)
    assert len(found.levels) == 1


def test_machine_that_recovers_has_three_levels() -> None:
    times = steady(12, 0) + steady(12, 1, 0.7) + steady(12, 2)
    levels = inspect(times, ["job"] * 36).levels
    assert [level.start for level in levels] == pytest.approx([0, 12, 24], abs=1)
    assert levels[-1].log_ratio == pytest.approx(0, abs=0.1)


def test_too_little_says_nothing() -> None:
    assert inspect([], []).levels[0].start == 0
    assert inspect([0.0, 5.0], ["one", "another"]).outliers == ()
