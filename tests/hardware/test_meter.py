"""Energy: counters that can be trusted, counters that cannot, and the estimate that stands in for them."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hardware.catalogue import CpuIdentity, load_catalogue
from hardware.energy import IDLE_SHARE, CpuPowerModel, CpuTimeEstimate, EnergySource, RaplCounter
from hardware.meter import Component, EnergyMeter, measure_energy
from shunter.errors import HardwareError


class Replay(EnergySource):
    """A counter that shows recorded values, one at each reading; an error is raised where one was recorded."""

    def __init__(self, *values: float | HardwareError, measured: bool = True, words: str = "counter") -> None:
        self.method = "measured" if measured else "estimated"
        self.words = words
        self._values: Iterator[float | HardwareError] = iter(values)

    def joules(self) -> float:
        value = next(self._values)
        if isinstance(value, HardwareError):
            raise value
        return value


def metered(*sources: EnergySource, seconds: float = 2.0, refused: Sequence[str] = ()) -> EnergyMeter:
    times = iter((0.0, seconds))
    with EnergyMeter([Component("processor", sources, refused)], clock=lambda: next(times)) as meter:
        pass
    return meter


def test_a_counter_is_read_as_the_difference_of_two_readings() -> None:
    reading = metered(Replay(100.0, 130.0)).reading
    assert (reading.joules, reading.seconds, reading.mean_watts, reading.method) == (30.0, 2.0, 15.0, "measured")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((100.0, 100.0), "stood still"),
        ((0.0, 0.0), "stood still"),
        ((100.0, 40.0), "ran backwards"),
        ((100.0, HardwareError("the counter is gone")), "the counter is gone"),
        ((HardwareError("permission denied"),), "permission denied"),
    ],
)
def test_a_counter_that_cannot_be_trusted_gives_way_to_the_estimate_and_the_reading_says_why(
    values: tuple[float | HardwareError, ...], reason: str
) -> None:
    reading = metered(Replay(*values), Replay(0.0, 8.0, measured=False, words="model")).reading
    assert (reading.joules, reading.method) == (8.0, "estimated")
    assert reading.source.startswith("processor: model, because")
    assert reason in reading.source


def test_a_counter_that_was_reset_in_between_is_noticed() -> None:
    times = iter((0.0, 1.0, 2.0))
    sources = (Replay(100.0, 150.0, 120.0), Replay(0.0, 9.0, measured=False))
    with EnergyMeter([Component("processor", sources)], clock=lambda: next(times)) as meter:
        assert meter.joules_so_far() == 50.0
    assert (meter.reading.joules, meter.reading.method) == (9.0, "estimated")


def test_without_any_source_energy_is_unavailable_and_not_zero() -> None:
    reading = metered(refused=["no RAPL counter can be read (permission denied)"]).reading
    assert (reading.joules, reading.mean_watts, reading.method) == (None, None, "unavailable")
    assert "permission denied" in reading.source


@pytest.mark.parametrize(
    ("second", "joules", "method"),
    [
        (Replay(0.0, 5.0), 15.0, "measured"),
        (Replay(0.0, 5.0, measured=False), 15.0, "estimated"),
        (Replay(HardwareError("no rights")), None, "unavailable"),
    ],
)
def test_a_total_is_as_trustworthy_as_its_weakest_part(second: Replay, joules: float | None, method: str) -> None:
    components = [Component("processor", [Replay(0.0, 10.0)]), Component("cuda:0", [second])]
    with EnergyMeter(components) as meter:
        pass
    assert (meter.reading.joules, meter.reading.method) == (joules, method)


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=20))
def test_whatever_a_counter_shows_a_reading_is_positive_or_unavailable(values: list[float]) -> None:
    times = iter(range(len(values) + 1))
    component = Component("processor", [Replay(*values)])
    with EnergyMeter([component], clock=lambda: float(next(times))) as meter:
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="the machine has the device")
def test_a_device_that_is_not_there_makes_the_energy_unavailable() -> None:
    with measure_energy("cuda:0") as meter:
        pass
    assert meter.reading.method == "unavailable"
    assert "NVML does not list cuda:0" in meter.reading.source


class TestEstimate:
    def test_watts_follow_the_stated_model(self) -> None:
        model = CpuPowerModel(CpuIdentity(model_name="AMD EPYC 7763 64-Core Processor"), cores=4)
        per_core = 280 / 64
        assert model.watts(0) == pytest.approx(IDLE_SHARE * 4 * per_core)
        assert model.watts(4) == pytest.approx(4 * per_core)
        assert "280 W for 64 cores" in model.words

    def test_an_unknown_processor_gets_the_stated_default(self) -> None:
        model = CpuPowerModel(CpuIdentity(model_name="riscv64"), cores=2)
        assert model.watts(2) == pytest.approx(2 * load_catalogue().median_watts_per_core())
        assert "does not list riscv64" in model.words

    def test_work_of_a_child_counts_while_it_runs_and_after_it_has_ended(self) -> None:
        burn = (
            "import time, sys\n"
            "while time.process_time() < 0.4: sum(range(1000))\n"
            "print('done', flush=True); sys.stdin.read()"
        )
        # One watt for each busy core and none at rest, so that joules are core-seconds.
        model = CpuPowerModel(CpuIdentity(model_name=""), cores=1)
        model.idle_watts, model.busy_watts_per_core = 0.0, 1.0
        source = CpuTimeEstimate(model)
        before = source.joules()
        with subprocess.Popen(
            [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            running = source.joules() - before
            child.communicate()
        ended = source.joules() - before
        assert running >= 0.3, "the kernel accounts in ticks of 10 ms"
        assert ended >= running


class TestRapl:
    @pytest.fixture
    def zones(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A copy of the kernel's RAPL files, which Zeus reads as if they were the machine's."""
        import zeus.device.cpu as zeus_cpu
        from zeus.device.cpu import rapl

        root = tmp_path / "intel-rapl"
        monkeypatch.setattr(rapl, "RAPL_DIR", str(root))
        monkeypatch.setattr(zeus_cpu, "_cpus", None)
        rapl.rapl_is_available.cache_clear()
        yield root
        if zeus_cpu._cpus is not None:
            for cpu in zeus_cpu._cpus.cpus:
                assert isinstance(cpu, rapl.RAPLCPU)
                for file in (cpu.rapl_file, cpu.dram):
                    if file is not None and file._wraparound_tracker is not None:
                        file._wraparound_tracker._stop()
        rapl.rapl_is_available.cache_clear()

    @staticmethod
    def write_zone(folder: Path, name: str, energy_uj: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{energy_uj}\n")
        (folder / "max_energy_range_uj").write_text("262143328850\n")

    def test_packages_and_memory_add_up_and_the_platform_zone_is_not_counted_again(self, zones: Path) -> None:
        package, memory = zones / "intel-rapl:0", zones / "intel-rapl:0/intel-rapl:0:0"
        self.write_zone(package, "package-0", 1_000_000)
        self.write_zone(memory, "dram", 500_000)
        self.write_zone(zones / "intel-rapl:1", "psys", 9_000_000)
        counter = RaplCounter()
        before = counter.joules()
        self.write_zone(package, "package-0", 4_000_000)
        self.write_zone(memory, "dram", 1_500_000)
        assert counter.joules() - before == pytest.approx(4.0)

    def test_counters_that_are_missing_are_refused_with_the_reason(self, zones: Path) -> None:
        with pytest.raises(HardwareError, match="no RAPL counter can be read"):
            RaplCounter()
        zones.mkdir()
        from zeus.device.cpu import rapl

        rapl.rapl_is_available.cache_clear()
        with pytest.raises(HardwareError, match="lists no package"):
            RaplCounter()
