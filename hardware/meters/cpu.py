"""Energy sources of the processor: RAPL counters, this process's share of them, and an estimate by processor time."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.errors import HardwareError, first_line
from shunter.hardware.catalogue.rows import IDLE_SHARE, IDLE_SHARE_BOUNDS, CpuIdentity, load_catalogue
from shunter.hardware.meters.process_time import ProcessTime
from shunter.hardware.meters.source import SENSOR_SHARE, EnergySource, Uncertainty

if TYPE_CHECKING:
    from zeus.device.cpu.common import CPU


class RaplCounter(EnergySource):
    """Energy counters of the processor (RAPL): packages and memory of the whole machine.

    Zeus finds the zones, or uses its daemon if this process lacks the privileges. This class reads the files itself.
    Zeus counts overflows in an extra Python process for each zone, once a second, so that a reading right after an
    overflow drops by the counter's whole range. A subtraction modulo the range has no such error if the counter is read
    at least once per overflow (minutes apart at the soonest).
    """

    method = "measured"
    description = "RAPL counters of the processor packages and their memory, including other processes of the machine"
    needs_sampling = True

    def __init__(self) -> None:
        """Open the counters.

        Raises:
            HardwareError: the machine has none, or this process may not read them.
        """
        from zeus.device import get_cpus
        from zeus.exception import ZeusBaseError

        try:
            cpus = get_cpus().cpus
        except (ZeusBaseError, OSError) as error:
            raise HardwareError(f"no RAPL energy counter of this machine can be read ({first_line(error)})") from error
        # The zone `psys` includes the packages: counting both would double the joules.
        cpus = [cpu for cpu in cpus if getattr(getattr(cpu, "rapl_file", None), "name", "") != "psys"]
        if not cpus:
            raise HardwareError(
                "no RAPL energy counter of this machine can be read (the machine lists no processor package)"
            )
        self._zones = [read for cpu in cpus for read in _zones_of(cpu)]

    def joules(self) -> float:
        """Return the energy of all processor packages and their memory, corrected for counter overflows."""
        from zeus.exception import ZeusBaseError

        try:
            return sum(read() for read in self._zones)
        except (ZeusBaseError, OSError, ValueError) as error:
            raise HardwareError(
                f"the RAPL energy counter of the processor cannot be read ({first_line(error)})"
            ) from error

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        """Return the sensor's error share; the counter's resolution is far below a joule."""
        return Uncertainty(SENSOR_SHARE * joules, f"{SENSOR_SHARE:.0%} of the counter")


class RaplZone:
    """RAPL file, read as joules that never decrease.

    Args:
        path: File of the counter, in microjoules.
        range_microjoules: Value at which the counter wraps to zero.
    """

    def __init__(self, path: Path, range_microjoules: float) -> None:
        self._path = path
        self._range = range_microjoules
        self._last: float | None = None
        self._total = 0.0

    def __call__(self) -> float:
        """Return the joules since the first reading."""
        now = float(self._path.read_text())
        if self._last is not None:
            self._total += (now - self._last) % self._range
        self._last = now
        return self._total / 1e6


def _zones_of(cpu: "CPU") -> list[Callable[[], float]]:
    """Return the readers of one package's zones: its files, or Zeus' daemon."""
    files = [file for file in (getattr(cpu, "rapl_file", None), getattr(cpu, "dram", None)) if file is not None]
    if files:
        return [RaplZone(Path(file.energy_uj_path), file.max_energy_range_uj) for file in files]

    def ask() -> float:
        reading = cpu.get_total_energy_consumption()
        return (reading.cpu_mj + (reading.dram_mj or 0.0)) / 1000

    return [ask]


class ProcessShare(EnergySource):
    """Share of a machine's energy counter that belongs to this process and its descendants.

    Each interval between two readings is divided in proportion to busy core-seconds, as power models for containers do
    (Scaphandre, Kepler). Idle power and shared caches are divided the same way. The share counts as measured while
    other processes use at most `SENSOR_SHARE` of the busy time; otherwise it counts as an estimate.

    Args:
        whole: Counter of the machine.
        time_used: Processor time of this process and of the machine.
        idle_watts: Idle power of the machine; None if unknown.
        clock: Clock in seconds; tests pass their own.
    """

    needs_sampling = True

    def __init__(
        self,
        whole: EnergySource,
        time_used: ProcessTime | None = None,
        *,
        idle_watts: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._whole = whole
        self._time_used = time_used or ProcessTime()
        self._idle_watts = idle_watts
        self._clock = clock
        self.method = whole.method
        self._joules = self._whole_joules = self._idle_joules = 0.0
        self._last: tuple[float, float, float, float] | None = None
        self._own_seconds = self._busy_seconds = 0.0
        self.description = f"{whole.description}, divided by busy core-seconds: the share of this process tree"

    def joules(self) -> float:
        """Return the joules of the process tree since the first reading."""
        busy = self._time_used.process_seconds(), self._time_used.machine_seconds()
        now = self._whole.joules(), *busy, self._clock()
        if self._last is not None:
            joules, own, machine, seconds = (max(0.0, new - old) for new, old in zip(now, self._last, strict=True))
            own = min(own, machine)
            share = own / machine if machine > 0 else 0.0
            self._whole_joules += joules
            self._joules += joules * share
            self._idle_joules += min(joules, (self._idle_watts or 0.0) * seconds) * share
            self._own_seconds += own
            self._busy_seconds += machine
            others = self._busy_seconds - self._own_seconds
            self.method = self._whole.method if others <= SENSOR_SHARE * self._busy_seconds else "estimated"
        self._last = now
        return self._joules

    def idle_joules(self, joules: float, seconds: float) -> float | None:
        """Return the process tree's share of the machine's idle energy."""
        return None if self._idle_watts is None else min(joules, self._idle_joules)

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        """Return the sensor's error plus `IDLE_SHARE` of the other processes' joules, for misattributed idle power."""
        sensor = self._whole.uncertainty(joules, seconds)
        shared = IDLE_SHARE * max(0.0, self._whole_joules - joules)
        return Uncertainty(
            (sensor.joules if sensor else 0.0) + shared,
            f"{sensor.description if sensor else 'the counter'}, and {IDLE_SHARE:.0%} of the "
            "remaining energy as idle power that "
            "may be misattributed",
        )


class CpuPowerModel:
    """Power model of the usable cores: constant idle power, plus power for each busy core.

    Attributes:
        idle_watts: Idle power of `cores`.
        busy_watts_per_core: Additional power of each busy core.
        description: Figures and their source as text.
    """

    def __init__(self, cpu: CpuIdentity, cores: int) -> None:
        catalogue = load_catalogue()
        row = catalogue.find_cpu(cpu)
        all_watts = [listed.tdp_watts / listed.cores for listed in catalogue.cpus]
        self._per_core = statistics.median(all_watts) if row is None else row.tdp_watts / row.cores
        # For a processor that the catalogue does not list, the error is half the interquartile range of all rows.
        quarters = statistics.quantiles(all_watts, n=4)
        self._per_core_error = 0.0 if row is not None else (quarters[2] - quarters[0]) / 2
        self._cores = cores
        self.idle_watts = IDLE_SHARE * self._per_core * cores
        self.busy_watts_per_core = (1 - IDLE_SHARE) * self._per_core
        origin = (
            f"{self._per_core:.2f} W per core, the catalogue's median, because the catalogue does not list "
            f"{cpu.model_name or 'the processor'}"
            if row is None
            else f"{row.tdp_watts:.0f} W for {row.cores} cores, catalogue row {row.title}"
        )
        self.description = (
            f"processor time of the process and its children: {self.idle_watts:.2f} W idle for {cores} core(s) "
            f"and {self.busy_watts_per_core:.2f} W for each busy core ({origin})"
        )

    def watts(self, busy_cores: float) -> float:
        """Return the power in watts with `busy_cores` busy cores."""
        return self.idle_watts + self.busy_watts_per_core * busy_cores

    def uncertainty(self, seconds: float, core_seconds: float) -> Uncertainty:
        """Return the error from assumed idle power, the sensor and, for unlisted processors, the catalogue's spread."""
        free_seconds = self._cores * seconds - core_seconds
        spread = max(abs(share - IDLE_SHARE) for share in IDLE_SHARE_BOUNDS) * self._per_core * abs(free_seconds)
        listed = self._per_core_error / self._per_core * self.watts(core_seconds / seconds) * seconds if seconds else 0
        low, high = IDLE_SHARE_BOUNDS
        return Uncertainty(
            spread + listed + SENSOR_SHARE * self._per_core * core_seconds,
            f"an idle share between {low:.0%} and {high:.0%} of the design power instead of {IDLE_SHARE:.0%}, "
            f"{SENSOR_SHARE:.0%} of the power of busy cores"
            + (", and the interquartile range of the catalogue's watts per core" if self._per_core_error else ""),
        )


class CpuTimeEstimate(EnergySource):
    """Energy estimate from the processor time of this process and its children, by a `CpuPowerModel`."""

    method = "estimated"
    interval_seconds = 2.0  # Rare readings are equally exact, and a reading with child processes is slow.

    def __init__(self, model: CpuPowerModel) -> None:
        self._model = model
        self._time_used = ProcessTime()
        self.description = model.description

    def joules(self) -> float:
        """Return idle joules since the origin of the monotonic clock, plus busy joules of the core-seconds used."""
        busy_joules = self._model.busy_watts_per_core * self._time_used.process_seconds()
        return self._model.idle_watts * time.monotonic() + busy_joules

    def idle_joules(self, joules: float, seconds: float) -> float:
        """Return the idle energy of the cores, by the model."""
        return min(joules, self._model.idle_watts * seconds)

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty:
        """Return the uncertainty of the power model."""
        idle_joules = self._model.idle_watts * seconds
        core_seconds = max(0.0, joules - idle_joules) / self._model.busy_watts_per_core
        return self._model.uncertainty(seconds, core_seconds)
