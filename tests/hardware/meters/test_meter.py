"""Energy: counters that can be trusted, counters that cannot, and the estimate that stands in for them."""

import threading
from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import HardwareError
from shunter.hardware.meters.component import Component
from shunter.hardware.meters.meter import (
    MOST_LOOKING_SHARE,
    MOST_SAMPLING_SHARE,
    EnergyMeter,
    measure_energy,
    wait_seconds,
)
from shunter.hardware.meters.source import EnergySource, PowerIntegral, Uncertainty


class Replay(EnergySource):
    """A counter that shows recorded values, one at each reading; an error is raised where one was recorded."""

    def __init__(self, *values: float | HardwareError, measured: bool = True, description: str = "counter") -> None:
        self.method = "measured" if measured else "estimated"
        self.description = description
        self._values: Iterator[float | HardwareError] = iter(values)

    def joules(self) -> float:
        value = next(self._values)
        if isinstance(value, HardwareError):
            raise value
        return value


def metered(*sources: EnergySource, seconds: float = 2.0, refused: Sequence[str] = ()) -> EnergyMeter:
    times = iter((0.0, seconds))
    with EnergyMeter([Component("processor", sources, refused)], clock=lambda: next(times), sample=False) as meter:
        pass
    return meter


def test_a_counter_is_read_as_the_difference_of_two_readings() -> None:
    reading = metered(Replay(100.0, 130.0)).reading
    assert (reading.joules, reading.seconds, reading.mean_watts, reading.method) == (30.0, 2.0, 15.0, "measured")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((100.0, 100.0), "stopped counting"),
        ((0.0, 0.0), "stopped counting"),
        ((100.0, 40.0), "ran backwards"),
        ((100.0, HardwareError("the counter is gone")), "the counter is gone"),
        ((HardwareError("permission denied"),), "permission denied"),
    ],
)
def test_a_counter_that_cannot_be_trusted_gives_way_to_the_estimate_and_the_reading_says_why(
    values: tuple[float | HardwareError, ...], reason: str
) -> None:
    reading = metered(Replay(*values), Replay(0.0, 8.0, measured=False, description="model")).reading
    assert (reading.joules, reading.method) == (8.0, "estimated")
    assert reading.source.startswith("processor: model, because")
    assert reason in reading.source


def test_a_counter_that_was_reset_in_between_is_noticed() -> None:
    times = iter((0.0, 1.0, 2.0))
    sources = (Replay(100.0, 150.0, 120.0), Replay(0.0, 9.0, measured=False))
    with EnergyMeter([Component("processor", sources)], clock=lambda: next(times), sample=False) as meter:
        assert meter.joules_so_far() == 50.0
    assert (meter.reading.joules, meter.reading.method) == (9.0, "estimated")


def test_without_any_source_energy_is_unavailable_and_not_zero() -> None:
    reading = metered(refused=["no RAPL energy counter of this machine can be read (permission denied)"]).reading
    assert (reading.joules, reading.mean_watts, reading.method) == (None, None, "unavailable")
    assert "permission denied" in reading.source


@pytest.mark.parametrize(
    ("second", "joules", "method", "teaches"),
    [
        (Replay(0.0, 5.0), 15.0, "measured", True),
        (Replay(0.0, 10.0, measured=False), 20.0, "estimated", True),
        (Replay(0.0, 11.0, measured=False), 21.0, "estimated", False),
        (Replay(HardwareError("no rights")), None, "unavailable", False),
    ],
)
def test_a_total_is_as_trustworthy_as_its_weakest_part(
    second: Replay, joules: float | None, method: str, teaches: bool
) -> None:
    components = [Component("processor", [Replay(0.0, 10.0)]), Component("cuda:0", [second])]
    with EnergyMeter(components, sample=False) as meter:
        pass
    assert (meter.reading.joules, meter.reading.method) == (joules, method)
    assert meter.reading.teaches_power == teaches, "a processor without a counter beside a GPU that has one"


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=20))
def test_whatever_a_counter_shows_a_reading_is_positive_or_unavailable(values: list[float]) -> None:
    times = iter(range(len(values) + 1))
    component = Component("processor", [Replay(*values)])
    with EnergyMeter([component], clock=lambda: float(next(times)), sample=False) as meter:
        for _ in values[2:]:
            joules = meter.joules_so_far()
            assert joules is None or joules > 0
    assert (meter.reading.joules is None) == (meter.reading.method == "unavailable")
    assert meter.reading.joules is None or 0 < meter.reading.joules <= max(values) - values[0]


def test_reading_before_the_start_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="before it was entered"):
        _ = measure_energy().reading


def test_this_machine_gives_a_running_value_and_a_final_one_with_its_method() -> None:
    with measure_energy("cpu") as meter:
        first = meter.joules_so_far()
        sum(number * number for number in range(300_000))
        second = meter.joules_so_far()
    assert first is not None
    assert second is not None
    assert 0 < first < second <= (meter.reading.joules or 0)
    assert meter.reading.method in ("measured", "estimated")
    assert meter.reading.source.startswith("processor: ")
    assert meter.reading is meter.reading, "the final reading does not change any more"


def test_the_part_that_flows_at_rest_is_stated() -> None:
    with measure_energy("cpu") as meter:
        sum(number * number for number in range(300_000))
    assert meter.reading.joules is not None
    assert meter.reading.idle_joules is not None
    assert 0 < meter.reading.idle_joules < meter.reading.joules


@pytest.mark.skipif(torch.cuda.is_available(), reason="the machine has the device")
def test_a_device_that_is_not_there_makes_the_energy_unavailable() -> None:
    with measure_energy("cuda:0") as meter:
        pass
    assert meter.reading.method == "unavailable"
    assert "NVML does not list the GPU cuda:0" in meter.reading.source


class Known(EnergySource):
    """A counter that rises by `watts` a second of the test's own clock, and knows how far it may be off."""

    method = "measured"
    description = "known counter"

    def __init__(self, clock: "Clock", watts: float, error_share: float = 0.1) -> None:
        self._clock, self._watts, self._error_share = clock, watts, error_share

    def joules(self) -> float:
        return self._clock() * self._watts

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        return Uncertainty(self._error_share * joules, "a share of the counter")


class Clock:
    """Seconds that the test sets."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def test_a_source_that_fails_for_a_moment_counts_again() -> None:
    counter = Replay(0.0, HardwareError("busy"), 20.0)
    component = Component("processor", [counter, Replay(0.0, 5.0, measured=False)])
    component.start()
    assert component.read(1.0).joules == 5.0
    again = component.read(2.0)
    assert again.joules == 20.0
    assert "busy" not in again.source


def test_a_source_that_ran_backwards_never_counts_again() -> None:
    component = Component("processor", [Replay(10.0, 5.0, 50.0)])
    component.start()
    assert component.read(1.0).joules is None
    again = component.read(2.0)
    assert again.method == "unavailable"
    assert "ran backwards" in again.source


def test_a_clock_that_runs_backwards_stands_still() -> None:
    clock = Clock(100.0)
    with EnergyMeter([Component("processor", [Replay(0.0, 8.0)])], clock=clock, sample=False) as meter:
        clock.seconds = 104.0
        assert meter.seconds_so_far() == 4.0
        clock.seconds = 90.0
        assert meter.seconds_so_far() == 4.0
    assert (meter.reading.seconds, meter.reading.mean_watts) == (4.0, 2.0)


class TestHeldAccelerators:
    """An accelerator counts while it is held, and no moment longer."""

    @staticmethod
    def meter(clock: Clock, *names: str) -> EnergyMeter:
        def opened(name: str) -> Component:
            return Component(name, [Known(clock, 100.0)])

        components = [Component("processor", [Known(clock, 10.0)]), *map(opened, names)]
        return EnergyMeter(components, clock=clock, sample=False, opener=opened)

    def test_what_is_given_back_counts_until_then(self) -> None:
        clock = Clock()
        with self.meter(clock, "cuda:0", "cuda:1") as meter:
            clock.seconds = 3.0
            meter.count_only(["cuda:1"])
            clock.seconds = 10.0
            assert meter.joules_so_far() == pytest.approx(10 * 10 + 3 * 100 + 10 * 100)
            clock.seconds = 20.0
        reading = meter.reading
        assert reading.joules == pytest.approx(20 * 10 + 3 * 100 + 20 * 100)
        assert sum(
            sample.watts * (sample.seconds - before)
            for sample, before in zip(reading.power, (0.0, *(part.seconds for part in reading.power)), strict=False)
        ) == pytest.approx(reading.joules)

    def test_what_is_taken_later_counts_from_then_on(self) -> None:
        clock = Clock()
        with self.meter(clock) as meter:
            clock.seconds = 4.0
            meter.count_only(["cpu", "cuda:0"])
            clock.seconds = 6.0
            meter.count_only(["cpu"])
            clock.seconds = 9.0
            meter.count_only(["cpu", "cuda:0"])
            clock.seconds = 10.0
        assert meter.reading.joules == pytest.approx(10 * 10 + (2 + 1) * 100)

    def test_holding_the_same_changes_nothing(self) -> None:
        clock = Clock()
        with self.meter(clock, "cuda:0") as meter:
            for second in range(1, 4):
                clock.seconds = float(second)
                meter.count_only(["cuda:0"])
        assert meter.reading.joules == pytest.approx(3 * 110)
        assert meter.reading.source.count("cuda:0") == 1


def test_asking_what_was_used_so_far_reads_no_source_while_the_thread_does() -> None:
    looked, go_on = threading.Event(), threading.Event()

    class Slow(EnergySource):
        """Answers its own thread at once, and everybody else never."""

        method, description, interval_seconds = "measured", "slow counter", 0.01

        def __init__(self) -> None:
            self.readers: list[str] = []

        def joules(self) -> float:
            self.readers.append(threading.current_thread().name)
            if len(self.readers) > 2:
                looked.set()
                go_on.wait(timeout=60)
            return float(len(self.readers))

    source = Slow()
    with EnergyMeter([Component("processor", [source])]) as meter:
        looked.wait(timeout=60)
        go_on.set()
        while len(source.readers) < 8:
            assert meter.joules_so_far() is not None
    assert set(source.readers[1:-1]) == {"energy meter"}


def test_uncertainties_of_the_components_add_up_and_come_with_their_reason() -> None:
    clock = Clock()
    components = [
        Component("processor", [Known(clock, 10.0, error_share=0.1)]),
        Component("cuda:0", [Known(clock, 100.0, error_share=0.05)]),
    ]
    with EnergyMeter(components, clock=clock, sample=False) as meter:
        clock.seconds = 2.0
    assert meter.reading.joules == 220.0
    assert meter.reading.uncertainty_joules == pytest.approx(2.0 + 10.0)
    assert meter.reading.uncertainty == "processor: a share of the counter; cuda:0: a share of the counter"


def test_an_unknown_uncertainty_makes_that_of_the_sum_unknown() -> None:
    clock = Clock()
    components = [Component("processor", [Known(clock, 10.0)]), Component("cuda:0", [Replay(0.0, 5.0)])]
    with EnergyMeter(components, clock=clock, sample=False) as meter:
        clock.seconds = 2.0
    assert (meter.reading.joules, meter.reading.uncertainty_joules) == (25.0, None)


def test_watts_over_time_add_up_to_the_joules() -> None:
    clock = Clock()
    component = Component("processor", [Known(clock, 10.0)])
    with EnergyMeter([component], clock=clock, sample=False) as meter:
        for second in range(1, 8):
            clock.seconds = float(second)
            component.sample(clock.seconds)
        clock.seconds = 7.5
    power = meter.reading.power
    assert [sample.seconds for sample in power] == [1, 2, 3, 4, 5, 6, 7, 7.5]
    assert [sample.watts for sample in power] == pytest.approx([10.0] * 8)


def test_the_thread_samples_the_sources_while_the_work_runs() -> None:
    sampled = threading.Event()

    class Watched(PowerIntegral):
        def joules(self) -> float:
            joules = super().joules()
            if self._samples >= 4:
                sampled.set()
            return joules

    source = Watched(lambda: 50.0, "sensor", interval_seconds=0.01)
    with EnergyMeter([Component("cuda:0", [source])]) as meter:
        assert sampled.wait(timeout=60)
    assert meter.reading.method == "measured"
    assert meter.reading.mean_watts is not None
    assert meter.reading.power
    assert "energy meter" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(("processor", "wall"), [(0.0, 0.0), (1e-5, 1e-4), (1e-3, 0.1), (0.1, 0.1), (0.0, 1.0)])
def test_looking_never_takes_more_than_its_share_of_the_time(processor: float, wall: float) -> None:
    wait = wait_seconds(0.5, processor, wall)
    assert wait >= 0.5
    assert processor / wait <= MOST_SAMPLING_SHARE
    assert wall / wait <= MOST_LOOKING_SHARE
