"""Where joules come from: counters that measure, and models that estimate when nothing measures.

Each source counts joules since an origin of its own; a meter takes differences. They never return a made-up value: a
source that cannot be read raises `HardwareError`, and the meter turns to the next one and says so.
"""

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

import psutil

from hardware.catalogue import CpuIdentity, load_catalogue
from shunter.errors import HardwareError

if TYPE_CHECKING:
    from zeus.device.gpu.nvidia import NVIDIAGPU

# A server processor at rest draws somewhat less than a third of its peak: Barroso and Hoelzle, "The Case for
# Energy-Proportional Computing", IEEE Computer 40(12), 2007.
IDLE_SHARE = 0.3


class EnergySource(ABC):
    """One way to count the joules of one component.

    The meter reads it once when a window opens and again whenever the window's joules are asked for, from one thread.
    """

    method: Literal["measured", "estimated"]
    words: str

    @abstractmethod
    def joules(self) -> float:
        """Joules since the source's own origin.

        Raises:
            HardwareError: the source cannot be read.
        """


class RaplCounter(EnergySource):
    """The processor's own counters (RAPL), through Zeus: packages and memory of the whole machine."""

    method = "measured"
    words = "RAPL counters of the processor packages and their memory, other processes of the machine included"

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
            raise HardwareError("no RAPL counter can be read here") from error
        # The zone `psys` covers the packages once more: counting both would double the joules.
        self._cpus = [cpu for cpu in cpus if getattr(getattr(cpu, "rapl_file", None), "name", "") != "psys"]
        if not self._cpus:
            raise HardwareError("no RAPL counter can be read (the machine lists no package)")

    def joules(self) -> float:
        """Sum over packages; Zeus takes care of counters that wrap around."""
        from zeus.exception import ZeusBaseError

        try:
            readings = [cpu.get_total_energy_consumption() for cpu in self._cpus]
        except (ZeusBaseError, OSError) as error:
            raise HardwareError(f"the RAPL counter cannot be read ({_first_line(error)})") from error
        return sum(reading.cpu_mj + (reading.dram_mj or 0.0) for reading in readings) / 1000


class NvmlCounter(EnergySource):
    """The energy counter of one NVIDIA device (Volta and newer), through Zeus."""

    method = "measured"
    words = "NVML energy counter of the device"

    def __init__(self, accelerator: str) -> None:
        self._device = _zeus_gpu(accelerator)

    def joules(self) -> float:
        """Joules since the driver was loaded."""
        from zeus.exception import ZeusBaseError

        try:
            return self._device.get_total_energy_consumption() / 1000
        except ZeusBaseError as error:
            raise HardwareError(f"the NVML energy counter cannot be read ({_first_line(error)})") from error


class NvmlPowerSamples(EnergySource):
    """Instantaneous power of one NVIDIA device, integrated between the readings: coarse, so called an estimate."""

    method = "estimated"
    words = "NVML power readings of the device, integrated between the times at which they were asked for"

    def __init__(self, accelerator: str) -> None:
        self._device = _zeus_gpu(accelerator)
        self._joules = 0.0
        self._last: tuple[float, float] | None = None

    def joules(self) -> float:
        """Trapezoids between successive readings, since the first one."""
        from zeus.exception import ZeusBaseError

        try:
            watts = self._device.get_instant_power_usage() / 1000
        except ZeusBaseError as error:
            raise HardwareError(f"the NVML power reading failed ({_first_line(error)})") from error
        now = time.monotonic()
        if self._last is not None:
            then, watts_then = self._last
            self._joules += (now - then) * (watts + watts_then) / 2
        self._last = (now, watts)
        return self._joules


class CpuPowerModel:
    """Watts of the usable cores: an idle share that always flows, and the rest for each core while it is busy.

    Attributes:
        idle_watts: drawn by `cores` at rest.
        busy_watts_per_core: drawn on top by each busy core.
        words: the figures and where they come from.
    """

    def __init__(self, cpu: CpuIdentity, cores: int) -> None:
        catalogue = load_catalogue()
        row = catalogue.find_cpu(cpu)
        per_core = catalogue.median_watts_per_core() if row is None else row.tdp_watts / row.cores
        self.idle_watts = IDLE_SHARE * per_core * cores
        self.busy_watts_per_core = (1 - IDLE_SHARE) * per_core
        origin = (
            f"{per_core:.2f} W a core, the catalogue's median, as it does not list {cpu.model_name or 'the processor'}"
            if row is None
            else f"{row.tdp_watts:.0f} W for {row.cores} cores, catalogue row {row.title}"
        )
        self.words = (
            f"processor time of the process and its children: {self.idle_watts:.2f} W idle for {cores} core(s) "
            f"and {self.busy_watts_per_core:.2f} W for each busy core ({origin})"
        )

    def watts(self, busy_cores: float) -> float:
        """Power with `busy_cores` cores at work."""
        return self.idle_watts + self.busy_watts_per_core * busy_cores


class CpuTimeEstimate(EnergySource):
    """Processor time of this process and its children, put through a `CpuPowerModel`."""

    method = "estimated"

    def __init__(self, model: CpuPowerModel) -> None:
        self._model = model
        self._process = psutil.Process()
        self._most_core_seconds = 0.0
        self.words = model.words

    def joules(self) -> float:
        """Idle watts since the machine's clock began, plus busy watts for the core-seconds used so far."""
        return self._model.idle_watts * time.monotonic() + self._model.busy_watts_per_core * self._core_seconds()

    def _core_seconds(self) -> float:
        """User and system time of the process, of its ended children, and of the descendants that run now."""
        try:
            used = sum(self._process.cpu_times()[:4])
            descendants = self._process.children(recursive=True)
        except psutil.Error as error:
            raise HardwareError(f"the processor time of the process cannot be read ({error})") from error
        for child in descendants:
            try:
                used += sum(child.cpu_times()[:4])
            except psutil.Error:
                continue
        # A child that ends while we look is missing from both accounts until the next reading: never count backwards.
        self._most_core_seconds = max(self._most_core_seconds, used)
        return self._most_core_seconds


def _zeus_gpu(accelerator: str) -> "NVIDIAGPU":
    """Zeus' object for torch's device `cuda:<i>`.

    Raises:
        HardwareError: NVML does not list the device or does not let this process ask it.
    """
    from zeus.device.gpu.nvidia import NVIDIAGPU
    from zeus.exception import ZeusBaseError

    from hardware.nvml import nvml_index

    index = nvml_index(accelerator)
    if index is None:
        raise HardwareError(f"NVML does not list {accelerator}")
    try:
        return NVIDIAGPU(index)
    except ZeusBaseError as error:
        raise HardwareError(f"NVML refuses {accelerator} ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
