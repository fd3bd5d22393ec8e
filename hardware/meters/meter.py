"""Energy of a stretch of work: measured where a counter or sensor exists, else estimated, else called unavailable.

For each component the best source that gives a believable answer counts: energy counter, integral of power samples,
utilisation times design power. A thread reads them while the work runs, so that power samples are regular, counters
that overflow are followed, and the watts can be drawn over time.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Literal, Self

from hardware.devices.discovery import cpu_identity, usable_cores
from hardware.meters.component import Component
from hardware.meters.cpu import CpuPowerModel, CpuTimeEstimate, ProcessShare, RaplCounter
from hardware.meters.gpu import GpuCounter, GpuUtilisationEstimate, gpu_power
from hardware.meters.node import node_power
from hardware.meters.series import add_up, watts_over_time
from hardware.meters.source import EnergySource
from hardware.types import EnergyReading, Quantity
from shunter.errors import HardwareError

# The thread that reads the sources takes at most these shares of the time, of the processor and on the wall, and waits
# longer where reading takes long: the training may be waiting for Python's lock meanwhile.
MOST_SAMPLING_SHARE = 0.005
MOST_LOOKING_SHARE = 0.02


def measure_energy(
    *accelerators: str,
    scope: Literal["machine", "process", "node"] = "machine",
    idle_watts: Quantity | None = None,
    cores: int | None = None,
) -> "EnergyMeter":
    """Meter of the processor, which every training keeps busy, and of the named CUDA devices.

    Example:
        with measure_energy("cuda:0") as meter:
            work()
        print(meter.reading.joules, meter.reading.method)

    Args:
        accelerators: Names, as in `Accelerator.name`; `cpu` may be given and is counted once.
        scope: Extent of what is counted where the processor has a counter: all that it shows (`machine`) or the share
            of this process and its children (`process`); the estimate that stands in for a counter is always that of
            the process. `node` is the machine's own power meter, supplies and fans included, and `machine` where there
            is none.
        idle_watts: Power at rest (`measure_idle_watts`), to be subtracted; nothing is subtracted when None.
        cores: Cores whose idle power the estimate counts, for a process that shares the machine; None: all usable ones.
    """
    refused = []
    if scope == "node":
        try:
            return EnergyMeter([Component("node", [node_power()])], idle_watts=idle_watts)
        except HardwareError as error:
            refused.append(str(error))
    counter = _process_counter if scope == "process" else RaplCounter
    components = [_open("processor", counter, partial(_cpu_estimate, cores), refused=refused)]
    for name in dict.fromkeys(accelerators):
        if name != "cpu":
            openers = (GpuCounter, gpu_power, GpuUtilisationEstimate)
            components.append(_open(name, *(lambda opener=opener, name=name: opener(name) for opener in openers)))
    return EnergyMeter(components, idle_watts=idle_watts)


def measure_idle_watts(*accelerators: str, seconds: float = 2.0) -> Quantity | None:
    """Power of processor and devices while this process sleeps; None when nothing can tell it.

    Args:
        accelerators: Names, as in `measure_energy`.
        seconds: Length of the measurement.
    """
    with measure_energy(*accelerators) as meter:
        time.sleep(seconds)
    reading = meter.reading
    if reading.mean_watts is None or reading.method == "unavailable":
        return None
    return Quantity(value=reading.mean_watts, source=reading.method)


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
        idle_watts: Power at rest that is subtracted.
        sample: Whether a thread reads the sources meanwhile.
    """

    def __init__(
        self,
        components: Sequence[Component],
        clock: Callable[[], float] = time.monotonic,
        *,
        idle_watts: Quantity | None = None,
        sample: bool = True,
    ) -> None:
        self._components = list(components)
        self._clock = clock
        self._idle_watts = idle_watts
        self._sample = sample
        self._started_at: float | None = None
        self._latest_seconds = 0.0
        self._reading: EnergyReading | None = None
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Begin to count; entering again begins anew."""
        self._reading = None
        self._latest_seconds = 0.0
        for component in self._components:
            component.start()
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

    @property
    def reading(self) -> EnergyReading:
        """The whole stretch once it has ended, or what it has used so far, with watts over time."""
        with self._lock:
            return self._reading or self._read(with_power=True)

    def seconds_so_far(self) -> float:
        """Seconds since the meter was entered, until it was left."""
        return self._reading.seconds if self._reading is not None else self._elapsed()

    def joules_so_far(self) -> float | None:
        """Joules since the meter was entered, None when nothing can count them; cheaper than `reading`."""
        with self._lock:
            return (self._reading or self._read(with_power=False)).joules

    def _elapsed(self) -> float:
        """Seconds since the start; a clock that runs backwards stands still instead."""
        assert self._started_at is not None, "the meter is read before it was entered"
        self._latest_seconds = max(self._latest_seconds, self._clock() - self._started_at)
        return self._latest_seconds

    def _read(self, with_power: bool) -> EnergyReading:
        seconds = self._elapsed()
        parts = [component.read(seconds) for component in self._components]
        total = _sum(parts, seconds)
        if with_power and total.joules is not None:
            series = add_up([component.series(part) for component, part in zip(self._components, parts, strict=True)])
            total = total.model_copy(update={"power": watts_over_time(series)})
        return total if self._idle_watts is None else subtract_idle(total, self._idle_watts)

    def _watch(self, stop: threading.Event) -> None:
        """Read the sources at regular times until told to stop."""
        interval = min((component.interval_seconds for component in self._components), default=1.0)
        wait = interval
        while not stop.wait(wait):
            began, began_looking = time.thread_time(), time.perf_counter()
            with self._lock:
                if stop.is_set():
                    return
                for component in self._components:
                    component.sample(self._elapsed())
            wait = wait_seconds(interval, time.thread_time() - began, time.perf_counter() - began_looking)


def wait_seconds(interval_seconds: float, processor_seconds: float, looking_seconds: float) -> float:
    """Time until the next look at the sources: the interval, or longer where looking would take too large a share.

    Args:
        interval_seconds: Interval that the sources ask for.
        processor_seconds: Processor time of the last reading.
        looking_seconds: Wall clock of the last reading, waiting for locks and drivers included.
    """
    return max(interval_seconds, processor_seconds / MOST_SAMPLING_SHARE, looking_seconds / MOST_LOOKING_SHARE)


def subtract_idle(reading: EnergyReading, idle_watts: Quantity) -> EnergyReading:
    """What the work drew beyond the power at rest; unavailable, never zero, where it cannot be told from that.

    Args:
        reading: Energy of processor and devices.
        idle_watts: Power of the same at rest.
    """
    if reading.joules is None:
        return reading
    net = reading.joules - idle_watts.value * reading.seconds
    source = f"{reading.source}; less {idle_watts.value:.2f} W at rest ({idle_watts.source})"
    if net <= 0:
        return EnergyReading(
            joules=None,
            seconds=reading.seconds,
            mean_watts=None,
            method="unavailable",
            source=f"{source}, which is more than the whole",
        )
    measured = reading.method == "measured" and idle_watts.source == "measured"
    return EnergyReading.of(
        net,
        reading.seconds,
        "measured" if measured else "estimated",
        source,
        uncertainty_joules=reading.uncertainty_joules,
        uncertainty=reading.uncertainty,
        power=tuple(sample.model_copy(update={"watts": sample.watts - idle_watts.value}) for sample in reading.power),
    )


def _sum(parts: Sequence[EnergyReading], seconds: float) -> EnergyReading:
    """Total of the components: as trustworthy as its weakest part, and unknown when one part is unknown.

    Uncertainties add up, as one sensor's fault may well be the other's.
    """
    source = "; ".join(part.source for part in parts)
    joules = [part.joules for part in parts]
    if not joules or None in joules:
        return EnergyReading(joules=None, seconds=seconds, mean_watts=None, method="unavailable", source=source)
    errors = [part.uncertainty_joules for part in parts if part.uncertainty_joules is not None]
    return EnergyReading.of(
        sum(value for value in joules if value is not None),
        seconds,
        "measured" if all(part.method == "measured" for part in parts) else "estimated",
        source,
        uncertainty_joules=sum(errors) if len(errors) == len(parts) else None,
        uncertainty="; ".join(part.uncertainty for part in parts if part.uncertainty),
    )


def _cpu_estimate(cores: int | None) -> CpuTimeEstimate:
    return CpuTimeEstimate(cpu_power_model(cores))


def _process_counter() -> ProcessShare:
    return ProcessShare(RaplCounter())


def _open(name: str, *openers: Callable[[], EnergySource], refused: Sequence[str] = ()) -> Component:
    """Component of the sources that can be opened, with the reasons of those that cannot."""
    sources, reasons = [], list(refused)
    for opener in openers:
        try:
            sources.append(opener())
        except HardwareError as error:
            reasons.append(str(error))
    return Component(name, sources, reasons)
