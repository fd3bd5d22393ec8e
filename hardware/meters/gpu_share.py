"""Share of a GPU's joules that belongs to this process tree, if several processes share the device."""

import os
from collections.abc import Callable

from shunter.errors import HardwareError, first_line
from shunter.hardware.meters.process_time import descendants
from shunter.hardware.meters.source import SENSOR_SHARE, EnergySource, Uncertainty


class GpuUse:
    """Use of a device by process, from NVML.

    Args:
        accelerator: Name `cuda:<i>` of the device.

    Raises:
        HardwareError: NVML does not list the device, or refuses access.
    """

    def __init__(self, accelerator: str) -> None:
        from shunter.hardware.devices.nvml import nvml_handle

        self._handle = nvml_handle(accelerator)
        self._seen_until_microseconds = 0

    def own_share(self) -> float | None:
        """Return this process tree's share of the device use since the last call; None if NVML does not list it.

        The share is by multiprocessor utilisation. If no kernel ran, each process with memory on the device counts
        equally. In a container NVML may number processes differently, so that none is found and nothing can be divided.

        Raises:
            HardwareError: NVML does not answer.
        """
        import pynvml

        own = {os.getpid(), *descendants()}
        try:
            present = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)}
            if not present & own:
                return None
            if present <= own:
                return 1.0
            used = self._utilisation()
        except pynvml.NVMLError as error:
            raise HardwareError(f"the processes on the GPU cannot be listed ({first_line(error)})") from error
        total = sum(used.values())
        if not total:
            return len(present & own) / len(present)
        return sum(percent for pid, percent in used.items() if pid in own) / total

    def _utilisation(self) -> dict[int, float]:
        """Return the summed utilisation samples by process since the last call; empty if the device keeps none."""
        import pynvml

        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen_until_microseconds)
        except pynvml.NVMLError as error:
            if getattr(error, "value", None) == pynvml.NVML_ERROR_NOT_FOUND:
                return {}
            raise
        found: dict[int, float] = {}
        for sample in samples:
            self._seen_until_microseconds = max(self._seen_until_microseconds, int(sample.timeStamp))
            found[sample.pid] = found.get(sample.pid, 0.0) + float(sample.smUtil)
        return found


class GpuShare(EnergySource):
    """Energy source that attributes a device's joules to this process tree by the device use of each process.

    Args:
        whole: Energy source of the whole device.
        own_share: Share of this process tree since the last call, as `GpuUse.own_share` returns it.
        idle_watts: Idle power of the device; None if unknown.
    """

    needs_sampling = True

    def __init__(
        self, whole: EnergySource, own_share: Callable[[], float | None], idle_watts: float | None = None
    ) -> None:
        self._whole, self._own_share = whole, own_share
        self._idle_watts = idle_watts
        self.method, self.description = whole.method, whole.description
        self.interval_seconds = whole.interval_seconds
        self._joules = self._whole_joules = 0.0
        self._last: float | None = None
        self._unknown = ""

    def joules(self) -> float:
        """Return the energy of this process tree on the GPU since the first reading, in joules."""
        now = self._whole.joules()
        if self._last is None:
            self._last = now
            return 0.0
        stretch, self._last = now - self._last, now
        if stretch < 0:
            return self._joules + stretch  # the counter ran backwards; the decrease lets `Component` detect it
        self._whole_joules += stretch
        self._joules += stretch * self._share()
        others = self._whole_joules - self._joules
        self.method = "estimated" if others > SENSOR_SHARE * self._whole_joules else self._whole.method
        self.description = self._whole.description
        if self._unknown:
            self.description += f", including other processes on it ({self._unknown})"
        elif self._joules < self._whole_joules:
            self.description += ", divided by the use of the processes on it"
        return self._joules

    def _share(self) -> float:
        """Return this process tree's share; 1 if the share is unknown, with the reason in the description."""
        try:
            share = self._own_share()
        except HardwareError as error:
            self._unknown = str(error)
            return 1.0
        if share is None:
            self._unknown = "NVML does not list this process on the device"
            return 1.0
        return share

    def idle_joules(self, joules: float, seconds: float) -> float | None:
        """Return the idle energy of the GPU in joules, divided in the same proportion as the total."""
        if self._idle_watts is None:
            return None
        share = self._joules / self._whole_joules if self._whole_joules else 1.0
        return min(joules, self._idle_watts * seconds * share)

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty | None:
        """Return the source's error plus half of the joules of other processes.

        The division is inexact: utilisation is the time with a running kernel, not the number of busy units.
        """
        known = self._whole.uncertainty(joules, seconds)
        others = max(0.0, self._whole_joules - self._joules)
        if known is None or not others:
            return known
        return Uncertainty(known.joules + others / 2, f"{known.description}, and half of the energy of other processes")
