"""Durations of the steps of a flow and of the time outside all steps, and energy of the process."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shunter.engine.stopping import RunClock
from shunter.hardware.meters.cpu import CpuPowerModel
from shunter.hardware.meters.meter import cpu_power_model
from shunter.hardware.meters.process_time import ProcessTime
from shunter.hardware.types import EnergyReading
from shunter.masked_console import Console, is_quiet
from shunter.tasks.progress_line import is_drawn, progress_line

START, OTHER = "start", "other"
END = "end"  # of the process, after the last step of the flow


class StepClock:
    """Wall-clock seconds of each step of this attempt; prints a line per step if there is no progress line.

    Args:
        before: Seconds that the process has already spent on its start and its imports.
        now: Clock in seconds.

    Attributes:
        command: Clock of the command for stop conditions; it excludes the time of waiting for other training runs.
        energy: Energy of this process outside the work that a meter counts.
        seconds: Seconds of each step.
    """

    def __init__(self, before: float = 0.0, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self.command = RunClock(before, now)
        self.energy = ProcessEnergy(before)
        self._now = now
        self._began = now() - before
        self._running: tuple[str, float] | None = None
        self._console = Console(stderr=True, highlight=False, quiet=is_quiet())
        if before:
            self._add(START, before)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the block as step `name`; steps must not overlap."""
        self._running = name, self._now()
        try:
            with progress_line(name):
                yield
            self._add(name, self._now() - self._running[1])
        finally:
            self._running = None

    def account(self) -> dict[str, float]:
        """Return the seconds of each step, and as `other` the seconds since process start outside all steps."""
        now, seconds = self._now(), dict(self.seconds)
        if self._running is not None:
            name, started = self._running
            seconds[name] = seconds.get(name, 0.0) + now - started
        return {**seconds, OTHER: now - self._began - sum(seconds.values())}

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds  # a step can run again after an exploration
        if not is_drawn(self._console):
            self._console.print(f"{name:<10}{seconds:7.1f} s")


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
