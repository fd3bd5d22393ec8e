"""Power samples joined by trapezoids, and joules over time."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.hardware.meters.series import JouleSeries, add_up, watts_over_time
from shunter.hardware.meters.source import SENSOR_SHARE, PowerIntegral


def integrate(*points: tuple[float, float], interval_seconds: float = 1.0) -> tuple[PowerIntegral, float]:
    """Integral of pairs of seconds and watts, and its joules."""
    times, watts = iter([point[0] for point in points]), iter([point[1] for point in points])
    integral = PowerIntegral(lambda: next(watts), "sensor", interval_seconds, clock=lambda: next(times))
    return integral, [integral.joules() for _ in points][-1]


class TestPowerIntegral:
    def test_trapezoids_of_a_ramp_are_exact(self) -> None:
        integral, joules = integrate((0, 0), (1, 10), (3, 30), (4, 40))
        assert joules == pytest.approx(80.0)
        assert integral.uncertainty(joules, 4.0).joules == pytest.approx(SENSOR_SHARE * 80)

    def test_power_that_jumps_between_samples_makes_it_less_certain(self) -> None:
        calm, joules = integrate((0, 50), (1, 50), (2, 50), (3, 50), (4, 50))
        wild, same = integrate((0, 0), (1, 100), (2, 0), (3, 100), (4, 0))
        assert (joules, same) == (200, 200)
        assert calm.uncertainty(200, 4).joules == pytest.approx(10)
        assert wild.uncertainty(200, 4).joules == pytest.approx(10 + 200), "every second sample alone would say 0 J"

    def test_two_samples_alone_may_be_wrong_altogether(self) -> None:
        integral, joules = integrate((0, 50), (1, 50))
        assert integral.uncertainty(joules, 1).joules == pytest.approx(1.05 * joules)

    def test_a_gap_is_named_and_makes_it_less_certain(self) -> None:
        integral, joules = integrate((0, 20), (1, 20), (2, 20), (12, 60), (13, 60))
        assert "1 gap(s) of 10.0 s" in integral.description
        error = integral.uncertainty(joules, 13)
        assert error.joules >= 10 * (60 - 20) / 2
        assert "gaps" in error.description

    def test_a_clock_that_runs_backwards_adds_nothing_and_is_named(self) -> None:
        integral, joules = integrate((10, 50), (11, 50), (5, 50), (6, 50))
        assert joules == pytest.approx(100)
        assert "1 gap(s)" in integral.description

    def test_the_words_say_how_often_it_was_sampled(self) -> None:
        integral, _ = integrate((0, 1), (0.5, 1), (1, 1), interval_seconds=0.5)
        assert "samples 0.5 s apart" in integral.description

    @settings(deadline=None)
    @given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1000)), min_size=2, max_size=40))
    def test_the_joules_lie_between_those_of_least_and_most_power(self, steps: list[tuple[float, float]]) -> None:
        times = itertools.accumulate(seconds for seconds, _ in steps)
        watts = [power for _, power in steps]
        integral, joules = integrate(*zip(times, watts, strict=True))
        seconds = sum(step for step, _ in steps[1:])
        assert min(watts) * seconds - 1e-6 <= joules <= max(watts) * seconds + 1e-6
        assert integral.uncertainty(joules, seconds).joules >= SENSOR_SHARE * joules


def series(*points: tuple[float, float], max_points: int = 240) -> JouleSeries:
    made = JouleSeries(max_points)
    for seconds, joules in points:
        made.add(seconds, joules)
    return made


class TestSeries:
    @pytest.mark.parametrize("most", [100, 101])
    def test_thinning_keeps_the_energy_and_the_bound(self, most: int) -> None:
        made = series(*((float(second), 3.0 * second) for second in range(1, 10_001)), max_points=most)
        made.finish(10_000.0, 30_000.0)
        assert len(made.seconds) <= most
        assert (made.seconds[0], made.seconds[-1], made.joules[-1]) == (0.0, 10_000.0, 30_000.0)
        power = watts_over_time(made)
        assert sum(
            sample.watts * (sample.seconds - since)
            for sample, since in zip(power, [0.0, *(point.seconds for point in power)], strict=False)
        ) == pytest.approx(30_000.0)
        assert all(sample.watts == pytest.approx(3.0) for sample in power)

    @pytest.mark.parametrize("most", [10, 11])
    def test_the_last_point_stays_whenever_it_is_thinned(self, most: int) -> None:
        made = JouleSeries(max_points=most)
        for second in range(1, 50):
            made.finish(float(second), 2.0 * second)
            assert (made.seconds[0], made.seconds[-1], made.joules[-1]) == (0.0, second, 2.0 * second)
            assert len(made.seconds) <= most

    def test_a_point_that_is_not_later_is_left_out(self) -> None:
        assert series((1, 5), (1, 6), (0.5, 7)).seconds == [0.0, 1]

    def test_between_points_the_joules_lie_on_a_line(self) -> None:
        made = series((2, 10), (4, 30))
        assert [made.at(seconds) for seconds in (-1, 0, 1, 2, 3, 9)] == [0, 0, 5, 10, 20, 30]

    def test_streams_with_other_times_are_added_up_at_every_moment(self) -> None:
        total = add_up([series((1, 10), (2, 20)), series((1.5, 30), (2, 40))])
        assert total.seconds == [0.0, 1, 1.5, 2]
        assert total.joules == pytest.approx([0, 10 + 20, 15 + 30, 60])

    def test_short_stretches_are_joined_and_the_last_may_be_short(self) -> None:
        made = series((0.4, 4), (0.8, 8), (1.2, 12), (1.3, 14))
        assert [(sample.seconds, round(sample.watts, 6)) for sample in watts_over_time(made)] == [(1.2, 10), (1.3, 20)]
