"""The part of a GPU's joules that belongs to this process tree, where several processes share the device."""

import os
from collections.abc import Callable

from shunter.errors import HardwareError, first_line
from shunter.hardware.meters.process_time import descendants
from shunter.hardware.meters.source import SENSOR_SHARE, EnergySource, Uncertainty


class GpuUse:
    """Which processes use a device, and how much of it each, by NVML.

    Args:
        accelerator: Name `cuda:<i>` of the device.

    Raises:
        HardwareError: NVML does not list the device, or does not know this process there.
    """

    def __init__(self, accelerator: str) -> None:
        from shunter.hardware.devices.nvml import nvml_handle

        self._handle = nvml_handle(accelerator)
        self._seen_until_microseconds = 0

    def own_share(self) -> float | None:
        """Share of this process tree since the last call; None while NVML shows none of it on the device.

        By utilisation of the multiprocessors; where nothing ran, each process that holds memory there counts alike. In
        a container NVML may number processes otherwise: then none is found, and nothing can be divided.

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
            raise HardwareError(f"the processes on the device cannot be listed ({first_line(error)})") from error
        total = sum(used.values())
        if not total:
            return len(present & own) / len(present)
        return sum(percent for pid, percent in used.items() if pid in own) / total

    def _utilisation(self) -> dict[int, float]:
        """Sum of the samples of each process since the last call; empty where the device keeps none."""
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
    """A device's joules, each stretch between two readings divided by the use of the processes on it.

    Args:
        whole: Counter, sensor or estimate of the device.
        own_share: Share of this process tree since the last call, as `GpuUse.own_share` says.
        idle_watts: Power of the device at rest; None where unknown.
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
        """Joules of this process tree since the first reading."""
        now = self._whole.joules()
        if self._last is None:
            self._last = now
            return 0.0
        stretch, self._last = now - self._last, now
        if stretch < 0:
            return self._joules + stretch  # the counter ran backwards, and whoever compares is to see it
        self._whole_joules += stretch
        self._joules += stretch * self._share()
        others = self._whole_joules - self._joules
        self.method = "estimated" if others > SENSOR_SHARE * self._whole_joules else self._whole.method
        self.description = self._describe()
        return self._joules

    def _describe(self) -> str:
        """What is read, and how it was divided."""
        if self._unknown:
            return f"{self._whole.description}, other processes there included ({self._unknown})"
        divided = self._joules < self._whole_joules
        return self._whole.description + (", divided by the use of the processes on it" if divided else "")

    def _share(self) -> float:
        """All of it where nobody can tell whose it is; the description says so."""
        try:
            share = self._own_share()
        except HardwareError as error:
            self._unknown = str(error)
            return 1.0
        if share is None:
            self._unknown = "this process is not among those that NVML lists there"
            return 1.0
        return share

    def idle_joules(self, joules: float, seconds: float) -> float | None:
        """What flows at rest, in the proportion in which the whole was divided."""
        if self._idle_watts is None:
            return None
        share = self._joules / self._whole_joules if self._whole_joules else 1.0
        return min(joules, self._idle_watts * seconds * share)

    def uncertainty(self, joules: float, seconds: float) -> Uncertainty | None:
        """That of the whole, and half of what was counted to others: utilisation counts kernels, not busy units."""
        known = self._whole.uncertainty(joules, seconds)
        others = max(0.0, self._whole_joules - self._joules)
        if known is None or not others:
            return known
        return Uncertainty(known.joules + others / 2, f"{known.description}, and half of what was counted to others")
