"""Energy of a process outside the work that a meter counts, estimated from its processor time."""

import time
from collections.abc import Callable

from shunter.hardware.meters.cpu import CpuPowerModel
from shunter.hardware.meters.meter import cpu_power_model
from shunter.hardware.meters.process_time import ProcessTime
from shunter.hardware.types import EnergyReading


class ProcessEnergy:
    """Energy of this process and its children since the last reading, estimated by the power model of the processor.

    Accelerators other than the processor are not counted.

    Args:
        before: Seconds that the process has spent for this run so far; 0 if its earlier processor time belongs to other
            work.
        core_seconds: Returns the core-seconds of the process so far.
        now: Clock in seconds.
    """

    def __init__(
        self,
        before: float = 0.0,
        core_seconds: Callable[[], float] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core_seconds, self._now = core_seconds or ProcessTime().process_seconds, now
        self._model: CpuPowerModel | None = None
        self._since = now() - before
        self._used = 0.0 if before else self._core_seconds()

    def restart(self) -> None:
        """Exclude the energy that the process has used so far."""
        self._since, self._used = self._now(), self._core_seconds()

    def take(self) -> EnergyReading:
        """Return the energy since the last `take` or `restart`, as a reading with its uncertainty."""
        self._model = self._model or cpu_power_model()
        since, used = self._since, self._used
        self.restart()
        seconds, core_seconds = self._since - since, max(0.0, self._used - used)
        idle = self._model.idle_watts * seconds
        error = self._model.uncertainty(seconds, core_seconds)
        return EnergyReading.of(
            idle + self._model.busy_watts_per_core * core_seconds,
            seconds,
            "estimated",
            f"processor: {self._model.description}",
            idle_joules=idle,
            uncertainty_joules=error.joules,
            uncertainty=f"processor: {error.description}",
        )
