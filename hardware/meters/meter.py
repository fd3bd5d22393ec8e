"""Energy of a stretch of work: measured where a counter or sensor exists, else estimated, else called unavailable.

For each component the best source that gives a believable answer counts: energy counter, integral of power samples,
utilisation times design power. A thread reads them while the work runs, so that power samples are regular, counters
that overflow are followed, and the watts can be drawn over time.
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

# The thread that reads the sources takes at most these shares of the time, of the processor and on the wall, and waits
# longer where reading takes long: the training may be waiting for Python's lock meanwhile.
MOST_SAMPLING_SHARE = 0.005
MOST_LOOKING_SHARE = 0.02
# What the thread has read is good for so long, and for so many of its waits; after that whoever asks reads himself.
FRESH_SECONDS = 5.0
FRESH_WAITS = 3
PROCESSOR = "processor"


class Stretch:
    """A component from the moment at which it begins to count, until it is closed or the meter ends.

    Args:
        component: What is counted; it is started here.
        since_seconds: Seconds of the meter at which it begins.
    """

    def __init__(self, component: Component, since_seconds: float = 0.0) -> None:
        self._component = component
        self._since_seconds = since_seconds
        self._last_words: EnergyReading | None = None
        component.start()

    @property
    def name(self) -> str:
        """Name of the component."""
        return self._component.name

    @property
    def is_open(self) -> bool:
        """Whether it still counts."""
        return self._last_words is None

    @property
    def interval_seconds(self) -> float:
        """How often it wants to be read."""
        return self._component.interval_seconds

    def close(self, seconds: float) -> None:
        """Count no more; `seconds` are the meter's."""
        self._last_words = self.read(seconds)

    def sample(self, seconds: float) -> None:
        """Look at the sources, at so many seconds of the meter."""
        if self.is_open:
            self._component.sample(seconds - self._since_seconds)

    def read(self, seconds: float, *, look: bool = True) -> EnergyReading:
        """Energy of the stretch until `seconds` of the meter; by the last look at the sources unless `look`."""
        if self._last_words is not None:
            return self._last_words
        return self._component.read(max(0.0, seconds - self._since_seconds), look=look)

    def series(self, reading: EnergyReading) -> JouleSeries:
        """Joules over the meter's time, of the last `reading`."""
        return self._component.series(reading).later(self._since_seconds)


def measure_energy(
    *accelerators: str,
    scope: Literal["machine", "process"] = "process",
    cores: int | None = None,
) -> "EnergyMeter":
    """Meter of the processor, which every training keeps busy, and of the named CUDA devices.

    Example:
        with measure_energy("cuda:0") as meter:
            work()
        print(meter.reading.joules, meter.reading.method)

    Args:
        accelerators: Names, as in `Accelerator.name`; `cpu` may be given and is counted once.
        scope: Extent of what is counted: the share of this process and its children (`process`), or all that counters
            show (`machine`); the estimate that stands in for the processor's counter is always that of the process.
        cores: Cores whose idle power the estimate counts, for a process that shares the machine; None: all usable ones.
    """
    counter = _process_counter if scope == "process" else RaplCounter
    processor = _open(PROCESSOR, counter, partial(_cpu_estimate, cores))
    names = [name for name in dict.fromkeys(accelerators) if name != "cpu"]
    opener = partial(_device, is_shared=scope == "process")
    return EnergyMeter([processor, *map(opener, names)], opener=opener)


def cpu_power_model(cores: int | None = None) -> CpuPowerModel:
    """The estimate's model of this machine's processor.

    Args:
        cores: Cores of it that count; None: all that this process may use.
    """
    return CpuPowerModel(cpu_identity(), usable_cores() if cores is None else cores)


class EnergyMeter:
    """Context manager around a stretch of work; it may also be read while the work runs.

    Args:
        components: Components to count.
        clock: Clock in seconds; tests put their own here.
        sample: Whether a thread reads the sources meanwhile.
        opener: Function that opens the component of an accelerator, for those that are counted later.
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
        """Begin to count; entering again begins anew."""
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
        """Take the final reading, also when the work failed."""
        self._stop.set()
        with self._lock:
            self._reading = self._read(with_power=True)
        if self._thread is not None:
            self._thread.join()

    def count_only(self, accelerators: Collection[str]) -> None:
        """Count the processor and these accelerators from now on; what others have used until now stays counted.

        Args:
            accelerators: Names, as in `measure_energy`: those that are held.
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
        """The whole stretch once it has ended, or what it has used so far, with watts over time."""
        with self._lock:
            return self._reading or self._read(with_power=True)

    def so_far(self) -> EnergyReading:
        """What has been used until the last look at the sources, without watts over time.

        It reads no source and waits for no lock while the thread looks at them regularly, so that it may be asked
        within a training step.
        """
        if self._reading is not None:
            return self._reading
        seen, good_for = self._seen, max(FRESH_SECONDS, FRESH_WAITS * self._wait)
        if seen is not None and self._elapsed() - seen.seconds <= good_for:
            return seen
        with self._lock:
            return self._read(with_power=False)

    def seconds_so_far(self) -> float:
        """Seconds since the meter was entered, until it was left."""
        return self._reading.seconds if self._reading is not None else self._elapsed()

    def joules_so_far(self) -> float | None:
        """Joules of `so_far`, None when nothing can count them."""
        return self.so_far().joules

    def _elapsed(self) -> float:
        """Seconds since the start; a clock that runs backwards stands still instead."""
        assert self._started_at is not None, "the meter is read before it was entered"
        self._latest_seconds = max(self._latest_seconds, self._clock() - self._started_at)
        return self._latest_seconds

    def _read(self, with_power: bool, *, seen_at: float | None = None) -> EnergyReading:
        """What was used until now; or until `seen_at`, when the sources were looked at, without another look."""
        seconds = self._elapsed() if seen_at is None else seen_at
        parts = [stretch.read(seconds, look=seen_at is None) for stretch in self._stretches]
        total = _sum(parts, seconds)
        if with_power and total.joules is not None:
            series = add_up([stretch.series(part) for stretch, part in zip(self._stretches, parts, strict=True)])
            total = total.model_copy(update={"power": watts_over_time(series)})
        return total

    def _watch(self, stop: threading.Event) -> None:
        """Read the sources at regular times until told to stop."""
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
        """How often the sources that count now want to be read."""
        wishes = [stretch.interval_seconds for stretch in self._stretches if stretch.is_open]
        return min(wishes, default=1.0)


def wait_seconds(interval_seconds: float, processor_seconds: float, looking_seconds: float) -> float:
    """Time until the next look at the sources: the interval, or longer where looking would take too large a share.

    Args:
        interval_seconds: Interval that the sources ask for.
        processor_seconds: Processor time of the last reading.
        looking_seconds: Wall clock of the last reading, waiting for locks and drivers included.
    """
    return max(interval_seconds, processor_seconds / MOST_SAMPLING_SHARE, looking_seconds / MOST_LOOKING_SHARE)


def _sum(parts: Sequence[EnergyReading], seconds: float) -> EnergyReading:
    """Total of the components: as trustworthy as its weakest part, and unknown when one part is unknown.

    Uncertainties add up, as one sensor's fault may well be the other's.
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


def _cpu_estimate(cores: int | None) -> CpuTimeEstimate:
    return CpuTimeEstimate(cpu_power_model(cores))


def _process_counter() -> ProcessShare:
    whole = CpuPowerModel(cpu_identity(), psutil.cpu_count(logical=False) or usable_cores())
    return ProcessShare(RaplCounter(), idle_watts=whole.idle_watts)


def _device(name: str, *, is_shared: bool) -> Component:
    """Component of `cuda:<i>`, of which others may use a part."""
    openers = (GpuCounter, gpu_power, GpuUtilisationEstimate)
    return _open(name, *(partial(_device_source, opener, name, is_shared) for opener in openers))


def _device_source(opener: Callable[[str], EnergySource], name: str, is_shared: bool) -> EnergySource:
    """One way to count a device's joules: of all of it, or of the part that this process tree uses."""
    source = opener(name)
    if not is_shared:
        return source
    try:
        return GpuShare(source, GpuUse(name).own_share, gpu_idle_watts(name))
    except HardwareError:
        return source  # an AMD device, whose library tells nothing of processes


def _open(name: str, *openers: Callable[[], EnergySource]) -> Component:
    """Component of the sources that can be opened, with the reasons of those that cannot."""
    sources, reasons = [], []
    for opener in openers:
        try:
            sources.append(opener())
        except HardwareError as error:
            reasons.append(str(error))
    return Component(name, sources, reasons)
