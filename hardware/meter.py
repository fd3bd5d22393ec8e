"""Energy of a stretch of work: measured where a counter exists, else estimated and called so, else unavailable."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from hardware.discovery import cpu_identity, usable_cores
from hardware.energy import (
    CpuPowerModel,
    CpuTimeEstimate,
    EnergySource,
    NvmlCounter,
    NvmlPowerSamples,
    RaplCounter,
)
from hardware.types import EnergyReading
from shunter.errors import HardwareError


def measure_energy(*accelerators: str) -> "EnergyMeter":
    """Meter of the processor, which every training keeps busy, and of the named CUDA devices.

    Example:
        with measure_energy("cuda:0") as meter:
            work()
        print(meter.reading.joules, meter.reading.method)

    Args:
        accelerators: names as in `Accelerator.name`; `cpu` may be given and is counted once.
    """
    components = [_open("processor", RaplCounter, _cpu_estimate)]
    for name in dict.fromkeys(accelerators):
        if name != "cpu":
            components.append(
                _open(name, lambda name=name: NvmlCounter(name), lambda name=name: NvmlPowerSamples(name))
            )
    return EnergyMeter(components)


def cpu_power_model() -> CpuPowerModel:
    """The estimate's model of this machine's processor."""
    return CpuPowerModel(cpu_identity(), usable_cores())


class Component:
    """One consumer of energy with the sources that may count it, the best first.

    All sources run from the start, so that the next one can stand in for the whole window when a counter turns out to
    stand still, to run backwards or to fail.

    Args:
        name: `processor` or the accelerator's name.
        sources: in the order in which they are trusted.
        refused: why better sources could not even be opened.
    """

    def __init__(self, name: str, sources: Sequence[EnergySource], refused: Sequence[str] = ()) -> None:
        self.name = name
        self._refused = list(refused)
        self._sources = list(sources)
        self._unread: list[str] = []
        self._start: dict[EnergySource, float] = {}
        self._highest: dict[EnergySource, float] = {}

    def start(self) -> None:
        """Read every source once; those that cannot be read are left out with the reason kept."""
        self._start = {}
        self._unread = []
        for source in self._sources:
            try:
                self._start[source] = source.joules()
            except HardwareError as error:
                self._unread.append(str(error))
        self._highest = dict(self._start)

    def read(self, seconds: float) -> EnergyReading:
        """Joules since `start` from the first source that gives a believable answer.

        Args:
            seconds: time since `start`.
        """
        reasons = [*self._refused, *self._unread]
        for source, start in self._start.items():
            try:
                now = source.joules()
            except HardwareError as error:
                reasons.append(str(error))
                continue
            if now < self._highest[source]:
                reasons.append(f"the source '{source.words}' ran backwards")
            elif now == start:
                reasons.append(f"the source '{source.words}' stood still")
            else:
                self._highest[source] = now
                words = f"{self.name}: {source.words}" + (
                    f", because {' and '.join(dict.fromkeys(reasons))}" if reasons else ""
                )
                return EnergyReading.of(now - start, seconds, source.method, words)
        words = f"{self.name}: {' and '.join(dict.fromkeys(reasons)) or 'no source'}"
        return EnergyReading(joules=None, seconds=seconds, mean_watts=None, method="unavailable", source=words)


class EnergyMeter:
    """Context manager around a stretch of work; it may also be read while the work runs.

    Args:
        components: what is counted.
        clock: seconds; tests put their own here.
    """

    def __init__(self, components: Sequence[Component], clock: Callable[[], float] = time.monotonic) -> None:
        self._components = list(components)
        self._clock = clock
        self._started_at: float | None = None
        self._reading: EnergyReading | None = None

    def __enter__(self) -> Self:
        """Begin to count; entering again begins anew."""
        self._reading = None
        for component in self._components:
            component.start()
        self._started_at = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take the final reading, also when the work failed."""
        self._reading = self._read()

    @property
    def reading(self) -> EnergyReading:
        """The whole stretch once it has ended, or what it has used so far."""
        return self._reading or self._read()

    def seconds_so_far(self) -> float:
        """Seconds since the meter was entered, until it was left."""
        return self._reading.seconds if self._reading is not None else self._elapsed()

    def joules_so_far(self) -> float | None:
        """Joules since the meter was entered, None when nothing can count them."""
        return self.reading.joules

    def _elapsed(self) -> float:
        assert self._started_at is not None, "the meter is read before it was entered"
        return self._clock() - self._started_at

    def _read(self) -> EnergyReading:
        seconds = self._elapsed()
        return _sum([component.read(seconds) for component in self._components], seconds)


def _sum(parts: Sequence[EnergyReading], seconds: float) -> EnergyReading:
    """Total of the components: as trustworthy as its weakest part, and unknown when one part is unknown."""
    source = "; ".join(part.source for part in parts)
    joules = [part.joules for part in parts]
    if not joules or None in joules:
        return EnergyReading(joules=None, seconds=seconds, mean_watts=None, method="unavailable", source=source)
    method = "measured" if all(part.method == "measured" for part in parts) else "estimated"
    return EnergyReading.of(sum(one for one in joules if one is not None), seconds, method, source)


def _cpu_estimate() -> CpuTimeEstimate:
    return CpuTimeEstimate(cpu_power_model())


def _open(name: str, *openers: Callable[[], EnergySource]) -> Component:
    """Component of the sources that can be opened, with the reasons of those that cannot."""
    sources, refused = [], []
    for opener in openers:
        try:
            sources.append(opener())
        except HardwareError as error:
            refused.append(str(error))
    return Component(name, sources, refused)
