"""Energy meter of a period of work: measured by a counter or sensor, else estimated, else reported as unavailable.

For each component the best source with a plausible result is used: energy counter, integral of power samples,
utilisation times design power. A thread reads the sources during the work. Power samples are therefore regular, counter
overflows are tracked, and watts are available over time.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import TracebackType
from typing import Literal, Self

import psutil

from shunter.errors import HardwareError
from shunter.hardware.devices.discovery import cpu_identity, usable_cores
from shunter.hardware.meters.component import Component
from shunter.hardware.meters.cpu import CpuPowerModel, CpuTimeEstimate, ProcessShare, RaplCounter
from shunter.hardware.meters.gpu import GpuCounter, GpuUtilisationEstimate, gpu_idle_watts, gpu_power
from shunter.hardware.meters.gpu_share import GpuShare, GpuUse
from shunter.hardware.meters.series import JouleSeries, add_up, watts_over_time
from shunter.hardware.meters.source import EnergySource
from shunter.hardware.types import EnergyReading

# Largest shares of processor time and of wall-clock time of the thread that reads the sources. After a slow reading the
# thread waits longer, because the training may be waiting for the GIL meanwhile.
MOST_SAMPLING_SHARE = 0.005
MOST_LOOKING_SHARE = 0.02
# Readings of the thread are used for this long, or this many of its waits; later calls read the sources themselves.
FRESH_SECONDS = 5.0
FRESH_WAITS = 3
PROCESSOR = "processor"


class Stretch:
    """Counting period of a component, from its start until it is closed or the meter ends.

    Args:
        component: Component to count; it is started here.
        since_seconds: Start of the period, in seconds of the meter.
    """

    def __init__(self, component: Component, since_seconds: float = 0.0) -> None:
        self._component = component
        self._since_seconds = since_seconds
        self._last_words: EnergyReading | None = None
        component.start()

    @property
    def name(self) -> str:
        """Name of the metered component."""
        return self._component.name

    @property
    def is_open(self) -> bool:
        """Return True while the component is still being counted."""
        return self._last_words is None

    @property
    def interval_seconds(self) -> float:
        """Return the component's reading interval in seconds."""
        return self._component.interval_seconds

    def close(self, seconds: float) -> None:
        """Stop counting the component at a time of the meter, in seconds."""
        self._last_words = self.read(seconds)

    def sample(self, seconds: float) -> None:
        """Read the component's energy sources at a time of the meter, in seconds."""
        if self.is_open:
            self._component.sample(seconds - self._since_seconds)

    def read(self, seconds: float, *, look: bool = True) -> EnergyReading:
        """Return the energy of the period until `seconds` of the meter; without `look`, from the last readings."""
        if self._last_words is not None:
            return self._last_words
        return self._component.read(max(0.0, seconds - self._since_seconds), look=look)

    def series(self, reading: EnergyReading) -> JouleSeries:
        """Return joules over the meter's time, where `reading` is the last result of `read`."""
        return self._component.series(reading).later(self._since_seconds)


def measure_energy(
    *accelerators: str,
    scope: Literal["machine", "process"] = "process",
    cores: int | None = None,
) -> "EnergyMeter":
    """Return a meter of the processor, which every training job uses, and of the named CUDA devices.

    Example:
        with measure_energy("cuda:0") as meter:
            work()
        print(meter.reading.joules, meter.reading.method)

    Args:
        accelerators: Names, as in `Accelerator.name`; `cpu` may be given and is counted once.
        scope: `process` to count the share of this process and its children, or `machine` to count everything that the
            counters measure. An estimate that replaces the processor's counter always covers the process alone.
        cores: Cores whose idle power the estimate counts, for a process that shares the machine; None: all usable.
    """
    counter = _process_counter if scope == "process" else RaplCounter
    processor = _open(PROCESSOR, counter, lambda: CpuTimeEstimate(cpu_power_model(cores)))
    names = [name for name in dict.fromkeys(accelerators) if name != "cpu"]
    opener = partial(_device, is_shared=scope == "process")
    return EnergyMeter([processor, *map(opener, names)], opener=opener)


def cpu_power_model(cores: int | None = None) -> CpuPowerModel:
    """Return the power model of this machine's processor.

    Args:
        cores: Number of cores that count; None: all that this process may use.
    """
    return CpuPowerModel(cpu_identity(), usable_cores() if cores is None else cores)


class EnergyMeter:
    """Context manager that measures the energy of a period of work; readable while the work runs.

    Args:
        components: Components to count.
        clock: Clock in seconds; tests pass their own.
        sample: Whether a thread reads the sources during the work.
        opener: Function that opens the component of an accelerator that is added later.
    """

    def __init__(
        self,
        components: Sequence[Component],
        clock: Callable[[], float] = time.monotonic,
        *,
        sample: bool = True,
        opener: Callable[[str], Component] | None = None,
    ) -> None:
        self._components = list(components)
        self._clock = clock
        self._sample = sample
        self._opener = opener
        self._started_at: float | None = None
        self._latest_seconds = 0.0
        self._seen: EnergyReading | None = None
        self._wait = 0.0
        self._stretches: list[Stretch] = []
        self._reading: EnergyReading | None = None
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start counting; entering again restarts from zero."""
        self._reading = self._seen = None
        self._latest_seconds = 0.0
        self._stretches = [Stretch(component) for component in self._components]
        self._started_at = self._clock()
        if self._sample:
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._watch, args=(self._stop,), name="energy meter", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take the final reading, also if the work failed."""
        self._stop.set()
        with self._lock:
            self._reading = self._read(with_power=True)
        if self._thread is not None:
            self._thread.join()

    def count_only(self, accelerators: Collection[str]) -> None:
        """Count the processor and these accelerators from now on; energy counted before stays in the total.

        Args:
            accelerators: Names, as in `measure_energy`, of the reserved accelerators.
        """
        wanted = {PROCESSOR, *accelerators} - {"cpu"}
        with self._lock:
            if self._reading is not None:
                return
            seconds = self._elapsed()
            counted = {stretch.name for stretch in self._stretches if stretch.is_open}
            for stretch in self._stretches:
                if stretch.is_open and stretch.name not in wanted:
                    stretch.close(seconds)
            if self._opener is not None:
                self._stretches += [Stretch(self._opener(name), seconds) for name in sorted(wanted - counted)]

    @property
    def reading(self) -> EnergyReading:
        """Return the energy of the whole period after its end, else the energy so far, with watts over time."""
        with self._lock:
            return self._reading or self._read(with_power=True)

    def so_far(self) -> EnergyReading:
        """Return the energy until the last source reading, without watts over time.

        While the thread reads the sources periodically, this method reads no source and takes no lock. It can therefore
        be called within a training step.
        """
        if self._reading is not None:
            return self._reading
        seen, good_for = self._seen, max(FRESH_SECONDS, FRESH_WAITS * self._wait)
        if seen is not None and self._elapsed() - seen.seconds <= good_for:
            return seen
        with self._lock:
            return self._read(with_power=False)

    def seconds_so_far(self) -> float:
        """Return the seconds between entering and leaving the meter, or until now."""
        return self._reading.seconds if self._reading is not None else self._elapsed()

    def joules_so_far(self) -> float | None:
        """Return the joules used so far: 0 at the start, later None if the energy cannot be measured."""
        reading = self.so_far()
        return 0.0 if not reading.seconds and reading.joules is None else reading.joules

    def _elapsed(self) -> float:
        """Return the seconds since the start; the value never decreases, even if the clock runs backwards."""
        assert self._started_at is not None, "the meter is read before it was entered"
        self._latest_seconds = max(self._latest_seconds, self._clock() - self._started_at)
        return self._latest_seconds

    def _read(self, with_power: bool, *, seen_at: float | None = None) -> EnergyReading:
        """Return the energy until now, read now; if `seen_at` is given, by the sources' last readings, at that time."""
        seconds = self._elapsed() if seen_at is None else seen_at
        parts = [stretch.read(seconds, look=seen_at is None) for stretch in self._stretches]
        total = _sum(parts, seconds)
        if with_power and total.joules is not None:
            series = add_up([stretch.series(part) for stretch, part in zip(self._stretches, parts, strict=True)])
            total = total.model_copy(update={"power": watts_over_time(series)})
        return total

    def _watch(self, stop: threading.Event) -> None:
        """Read the sources periodically until `stop` is set."""
        self._wait = self._interval()
        while not stop.wait(self._wait):
            began, began_looking = time.thread_time(), time.perf_counter()
            with self._lock:
                if stop.is_set():
                    return
                seconds = self._elapsed()
                for stretch in self._stretches:
                    stretch.sample(seconds)
                self._seen = self._read(with_power=False, seen_at=seconds)
                interval = self._interval()
            self._wait = wait_seconds(interval, time.thread_time() - began, time.perf_counter() - began_looking)

    def _interval(self) -> float:
        """Return the shortest reading interval of the open periods in seconds."""
        wishes = [stretch.interval_seconds for stretch in self._stretches if stretch.is_open]
        return min(wishes, default=1.0)


def wait_seconds(interval_seconds: float, processor_seconds: float, looking_seconds: float) -> float:
    """Return the seconds until the next reading: the interval, or longer if readings take too large a share of time."""
    return max(interval_seconds, processor_seconds / MOST_SAMPLING_SHARE, looking_seconds / MOST_LOOKING_SHARE)


def _sum(parts: Sequence[EnergyReading], seconds: float) -> EnergyReading:
    """Return the total of the components: estimated if any part is estimated, unavailable if any part is unavailable.

    Uncertainties add up, because errors of two sensors can have the same cause.
    """
    source = "; ".join(dict.fromkeys(part.source for part in parts))
    joules = [part.joules for part in parts]
    if not joules or None in joules:
        return EnergyReading(joules=None, seconds=seconds, mean_watts=None, method="unavailable", source=source)
    errors = [part.uncertainty_joules for part in parts if part.uncertainty_joules is not None]
    idle = [part.idle_joules for part in parts if part.idle_joules is not None]
    return EnergyReading.of(
        sum(value for value in joules if value is not None),
        seconds,
        "measured" if all(part.method == "measured" for part in parts) else "estimated",
        source,
        uncertainty_joules=sum(errors) if len(errors) == len(parts) else None,
        uncertainty="; ".join(part.uncertainty for part in parts if part.uncertainty),
        idle_joules=sum(idle) if len(idle) == len(parts) else None,
        measured_joules=sum(part.measured_joules for part in parts),
    )


def _process_counter() -> ProcessShare:
    whole = CpuPowerModel(cpu_identity(), psutil.cpu_count(logical=False) or usable_cores())
    return ProcessShare(RaplCounter(), idle_watts=whole.idle_watts)


def _device(name: str, *, is_shared: bool) -> Component:
    """Return the component of `cuda:<i>`, which other processes may share."""

    def source(opener: Callable[[str], EnergySource]) -> EnergySource:
        whole = opener(name)
        if not is_shared:
            return whole
        try:  # the share of this process tree
            return GpuShare(whole, GpuUse(name).own_share, gpu_idle_watts(name))
        except HardwareError:
            return whole  # an AMD device: its library does not report use by process

    return _open(name, *(partial(source, opener) for opener in (GpuCounter, gpu_power, GpuUtilisationEstimate)))


def _open(name: str, *openers: Callable[[], EnergySource]) -> Component:
    """Return a component of the sources that can be opened, with the reasons why others cannot."""
    sources, reasons = [], []
    for opener in openers:
        try:
            sources.append(opener())
        except HardwareError as error:
            reasons.append(str(error))
    return Component(name, sources, reasons)
