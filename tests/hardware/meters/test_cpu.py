"""The processor's counters on a copy of the kernel's files, the share of a process, and the estimate."""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import HardwareError
from shunter.hardware.catalogue.rows import CpuIdentity, load_catalogue
from shunter.hardware.meters import process_time
from shunter.hardware.meters.cpu import IDLE_SHARE, CpuPowerModel, CpuTimeEstimate, ProcessShare, RaplCounter, RaplZone
from shunter.hardware.meters.process_time import ProcessTime, descendants
from shunter.hardware.meters.source import EnergySource, Uncertainty

RANGE_MICROJOULES = 262_143_328_850


class TestEstimate:
    def test_watts_follow_the_stated_model(self) -> None:
        model = CpuPowerModel(CpuIdentity(model_name="AMD EPYC 7763 64-Core Processor"), cores=4)
        per_core = 280 / 64
        assert model.watts(0) == pytest.approx(IDLE_SHARE * 4 * per_core)
        assert model.watts(4) == pytest.approx(4 * per_core)
        assert "280 W for 64 cores" in model.description

    def test_an_unknown_processor_gets_the_stated_default(self) -> None:
        model = CpuPowerModel(CpuIdentity(model_name="riscv64"), cores=2)
        per_core = statistics.median(row.tdp_watts / row.cores for row in load_catalogue().cpus)
        assert model.watts(2) == pytest.approx(2 * per_core)
        assert "does not list riscv64" in model.description

    def test_its_uncertainty_follows_from_the_idle_share_and_grows_where_the_processor_is_not_listed(self) -> None:
        listed = CpuPowerModel(CpuIdentity(model_name="AMD EPYC 7763 64-Core Processor"), cores=4)
        per_core = 280 / 64
        idle, busy = listed.uncertainty(10.0, 0.0), listed.uncertainty(10.0, 40.0)
        assert idle.joules == pytest.approx(0.2 * per_core * 4 * 10)
        assert busy.joules == pytest.approx(0.05 * per_core * 40), "all cores busy: the idle share does not matter"
        unlisted = CpuPowerModel(CpuIdentity(model_name="riscv64"), cores=4)
        watts = unlisted.watts(4)
        assert unlisted.uncertainty(10.0, 40.0).joules / watts > busy.joules / listed.watts(4)
        assert "interquartile range of the catalogue" in unlisted.uncertainty(10.0, 40.0).description

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
        rapl.rapl_is_available.cache_clear()

    @staticmethod
    def write_zone(folder: Path, name: str, energy_uj: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{energy_uj}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE_MICROJOULES}\n")

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
        with pytest.raises(HardwareError, match="no RAPL energy counter of this machine can be read"):
            RaplCounter()
        zones.mkdir()
        from zeus.device.cpu import rapl

        rapl.rapl_is_available.cache_clear()
        with pytest.raises(HardwareError, match="lists no processor package"):
            RaplCounter()

    def test_an_overflow_is_undone_at_once_and_without_another_process(self, zones: Path) -> None:
        package = zones / "intel-rapl:0"
        self.write_zone(package, "package-0", RANGE_MICROJOULES - 1_000_000)
        counter = RaplCounter()
        before = counter.joules()
        for beyond in (500_000, 3_000_000):
            self.write_zone(package, "package-0", beyond)
            assert counter.joules() - before == pytest.approx((1_000_000 + beyond) / 1e6)
        from zeus.device import get_cpus
        from zeus.device.cpu.rapl import RAPLCPU

        cpu = get_cpus().cpus[0]
        assert isinstance(cpu, RAPLCPU)
        assert cpu.rapl_file._wraparound_tracker is None, "Zeus starts a Python process for each zone that it reads"

    def test_a_counter_that_disappears_is_said_to(self, zones: Path) -> None:
        package = zones / "intel-rapl:0"
        self.write_zone(package, "package-0", 1_000_000)
        counter = RaplCounter()
        (package / "energy_uj").unlink()
        with pytest.raises(HardwareError, match="cannot be read"):
            counter.joules()

    @settings(deadline=None, max_examples=15)
    @given(steps=st.lists(st.integers(0, RANGE_MICROJOULES - 1), min_size=1, max_size=8))
    def test_whatever_it_overflows_the_joules_are_those_that_flowed(
        self, tmp_path_factory: pytest.TempPathFactory, steps: list[int]
    ) -> None:
        path = tmp_path_factory.mktemp("zone") / "energy_uj"
        true = 123_456
        path.write_text(str(true))
        zone = RaplZone(path, RANGE_MICROJOULES)
        assert zone() == 0
        for step in steps:
            true += step
            path.write_text(str(true % RANGE_MICROJOULES))
            assert zone() == pytest.approx((true - 123_456) / 1e6)


class Whole(EnergySource):
    """The machine's counter: 100 J more at each reading."""

    method = "measured"
    description = "machine"

    def __init__(self) -> None:
        self._joules = 0.0

    def joules(self) -> float:
        self._joules += 100.0
        return self._joules

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        return Uncertainty(0.05 * joules, "5 %")


class Times(ProcessTime):
    """Processor times that the test wrote down: of the process, and of the machine."""

    def __init__(self, *pairs: tuple[float, float]) -> None:
        self._pairs = list(pairs)

    def process_seconds(self) -> float:
        return self._pairs[0][0]

    def machine_seconds(self) -> float:
        return self._pairs.pop(0)[1]


def test_descendants_are_found_without_the_table_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        by_table = set(process_time._descendants_by_table())
        monkeypatch.delattr(psutil, "process_iter")
        monkeypatch.setattr(psutil.Process, "children", None)
        found = descendants()
        child.communicate(b"\n")
    assert child.pid in found
    assert by_table == set(found)
    assert len(found) >= 2, "the child's own child is one of them"


class TestProcessShare:
    def test_each_stretch_is_divided_by_processor_time(self) -> None:
        share = ProcessShare(Whole(), Times((1.0, 10.0), (2.0, 14.0), (5.0, 17.0), (5.0, 17.0)))
        assert share.joules() == 0.0
        assert share.joules() == pytest.approx(25.0)
        assert share.joules() == pytest.approx(125.0)
        assert share.joules() == pytest.approx(125.0), "nothing was busy"
        assert share.method == "estimated"

    def test_what_a_process_draws_alone_is_as_measured_as_the_counter(self) -> None:
        share = ProcessShare(Whole(), Times((0.0, 0.0), (97.0, 100.0), (98.0, 150.0)))
        share.joules()
        assert (share.joules(), share.method) == (pytest.approx(97.0), "measured")
        share.joules()
        assert share.method == "estimated", "others were busy for a third of the time"

    def test_the_idle_power_is_divided_as_the_rest_is_and_stated(self) -> None:
        seconds = iter((0.0, 2.0, 4.0))
        share = ProcessShare(
            Whole(), Times((0.0, 0.0), (1.0, 4.0), (5.0, 8.0)), idle_watts=20.0, clock=lambda: next(seconds)
        )
        joules = [share.joules() for _ in range(3)][-1]
        assert joules == pytest.approx(25 + 100)
        assert share.idle_joules(joules, 4.0) == pytest.approx(20 * 2 * 0.25 + 20 * 2)

    def test_its_uncertainty_is_that_of_the_counter_and_of_what_others_may_owe(self) -> None:
        share = ProcessShare(Whole(), Times((1.0, 10.0), (2.0, 14.0)))
        share.joules()
        joules = share.joules()
        error = share.uncertainty(joules, 1.0)
        assert error.joules == pytest.approx(0.05 * 25 + IDLE_SHARE * 75)

    def test_the_share_of_this_process_is_at_most_the_whole(self) -> None:
        share = ProcessShare(Whole())
        share.joules()
        sum(number * number for number in range(200_000))
        assert 0 <= share.joules() <= 100
