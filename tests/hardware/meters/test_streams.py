"""Streams of several meters, brought together by the time of day; and the machine's own power meter."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hardware.meters.node import node_power
from hardware.meters.streams import PowerStream, merge_streams
from hardware.types import EnergyReading, PowerSample
from shunter.errors import HardwareError


def test_streams_add_up_where_both_of_them_have_something_to_say() -> None:
    first = PowerStream(name="a", times=(0, 10), watts=(100,))
    second = PowerStream(name="b", times=(5, 8, 20), watts=(10, 40))
    merged = merge_streams([first, second])
    assert merged.total.times == (5, 8, 10)
    assert merged.total.watts == pytest.approx((110, 140))
    assert merged.uncovered_seconds == {"a": 5, "b": 10}


def test_streams_without_a_moment_in_common_are_refused() -> None:
    with pytest.raises(ValueError, match="a, b have no time in common"):
        merge_streams(
            [PowerStream(name="a", times=(0, 1), watts=(1,)), PowerStream(name="b", times=(1, 2), watts=(1,))]
        )
    with pytest.raises(ValueError, match="no stream"):
        merge_streams([])


def test_samples_are_joined_by_trapezoids_and_those_of_a_clock_that_runs_backwards_are_dropped() -> None:
    stream = PowerStream.of_samples("outlet", [(0, 100), (2, 200), (1, 999), (2, 999), (4, 100)])
    assert (stream.times, stream.watts, stream.dropped) == ((0, 2, 4), (150, 150), 2)
    assert stream.joules == 600


def test_a_reading_becomes_a_stream_of_the_time_of_day() -> None:
    power = (PowerSample(seconds=1, watts=10), PowerSample(seconds=3, watts=20))
    stream = PowerStream.of_reading("node", 1e9, EnergyReading.of(50, 3, "measured", "counter", power=power))
    assert stream.times == (1e9, 1e9 + 1, 1e9 + 3)
    assert stream.joules == 50


@pytest.mark.parametrize(("times", "watts"), [((0, 1), (1, 2)), ((0, 0), (1,)), ((1, 0), (1,))])
def test_a_stream_of_another_shape_is_refused(times: tuple[float, ...], watts: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError, match="x: "):
        PowerStream(name="x", times=times, watts=watts)


def test_no_sample_makes_no_stream() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        PowerStream.of_samples("x", [])


STRETCHES = st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 500)), min_size=1, max_size=12)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), STRETCHES), min_size=1, max_size=4))
def test_merging_neither_makes_nor_loses_energy(made: list[tuple[float, list[tuple[float, float]]]]) -> None:
    streams = []
    for number, (start, stretches) in enumerate(made):
        times = start + np.cumsum([0.0, *(seconds for seconds, _ in stretches)])
        streams.append(PowerStream(name=str(number), times=tuple(times.tolist()), watts=tuple(w for _, w in stretches)))
    begin, end = max(stream.times[0] for stream in streams), min(stream.times[-1] for stream in streams)
    if end <= begin:
        return
    expected = sum(float(np.diff(stream.joules_until(np.array([begin, end])))[0]) for stream in streams)
    merged = merge_streams(streams)
    assert merged.total.joules == pytest.approx(expected, abs=1e-6)
    if len(streams) == 1:
        assert merged.total.joules == pytest.approx(streams[0].joules)


class TestNode:
    def test_the_power_meter_of_the_machine_is_read_in_microwatts(self, tmp_path: Path) -> None:
        for number, name in enumerate(("coretemp", "power_meter")):
            folder = tmp_path / f"sys/class/hwmon/hwmon{number}"
            folder.mkdir(parents=True)
            (folder / "name").write_text(f"{name}\n")
            (folder / "power1_average").write_text("250000000\n")
        assert node_power(tmp_path)._read_watts() == 250.0

    def test_a_machine_without_one_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(HardwareError, match="no ACPI power meter"):
            node_power(tmp_path)

    def test_one_that_does_not_answer_is_refused(self, tmp_path: Path) -> None:
        folder = tmp_path / "sys/class/hwmon/hwmon0"
        folder.mkdir(parents=True)
        (folder / "name").write_text("power_meter\n")
        with pytest.raises(HardwareError, match="cannot be read"):
            node_power(tmp_path)
