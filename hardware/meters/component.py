"""Energy consumer with several sources that can count its joules."""

from collections.abc import Sequence

from shunter.errors import HardwareError
from shunter.hardware.meters.series import JouleSeries
from shunter.hardware.meters.source import EnergySource
from shunter.hardware.types import EnergyReading


class Component:
    """Energy consumer with the sources that may count its joules, the best source first.

    All sources run from the start. If a counter stops, runs backwards or fails, the next source covers the whole
    window.

    Args:
        name: `processor` or the accelerator's name.
        sources: Energy sources in order of preference.
        refused: Reasons why better sources could not be opened.
    """

    def __init__(self, name: str, sources: Sequence[EnergySource], refused: Sequence[str] = ()) -> None:
        self.name = name
        self._refused = list(refused)
        self._sources = list(sources)
        self._faults: dict[EnergySource, str] = {}
        self._backwards: set[EnergySource] = set()
        self._start: dict[EnergySource, float] = {}
        self._highest: dict[EnergySource, float] = {}
        self._series: dict[EnergySource, JouleSeries] = {}
        self._used: EnergySource | None = None

    @property
    def interval_seconds(self) -> float:
        """Return the reading interval: the shortest of the best source and of sources that need regular sampling."""
        wishes = [
            source.interval_seconds for source in self._sources if source.needs_sampling or source is self._sources[0]
        ]
        return min(wishes, default=1.0)

    def start(self) -> None:
        """Read every source once; a source that cannot be read is left out and the reason is stored."""
        self._start, self._faults, self._series, self._backwards = {}, {}, {}, set()
        for source in self._sources:
            try:
                self._start[source] = source.joules()
                self._series[source] = JouleSeries()
            except HardwareError as error:
                self._faults[source] = str(error)
        self._highest = dict(self._start)

    def sample(self, seconds: float) -> None:
        """Read the best source, and all sources that must be read often to count correctly.

        Args:
            seconds: Time since `start`.
        """
        believed = False
        for source in self._start:
            if not believed or source.needs_sampling:
                joules = self._advance(source, seconds)
                believed = believed or (joules is not None and joules > 0)

    def read(self, seconds: float, *, look: bool = True) -> EnergyReading:
        """Return the joules since `start` from the first source with a plausible result.

        Args:
            seconds: Time since `start`.
            look: Whether to read the sources now, instead of using their last readings.
        """
        still = []
        for source in self._start:
            if look:
                joules = self._advance(source, seconds)
            else:
                failed = source in self._backwards or source in self._faults
                joules = None if failed else self._highest[source] - self._start[source]
            if joules is None:
                continue
            if joules > 0:
                self._used = source
                return self._reading_of(source, joules, seconds, still)
            still.append(f"the source '{source.description}' stopped counting")
        description = f"{self.name}: {' and '.join(self._reasons(still)) or 'no source'}"
        return EnergyReading(joules=None, seconds=seconds, mean_watts=None, method="unavailable", source=description)

    def series(self, reading: EnergyReading) -> JouleSeries:
        """Return joules over time, from the source that gave `reading`; `reading` becomes the last point."""
        assert self._used is not None, "nothing was read"
        assert reading.joules is not None, "nothing was counted"
        series = self._series[self._used]
        series.finish(reading.seconds, reading.joules)
        return series

    def _advance(self, source: EnergySource, seconds: float) -> float | None:
        """Read a source; return its joules since the start, or None if it fails or has ever run backwards."""
        if source in self._backwards:
            return None
        try:
            now = source.joules()
        except HardwareError as error:
            self._faults[source] = str(error)
            return None
        if now < self._highest[source]:
            self._backwards.add(source)
            self._faults[source] = f"the source '{source.description}' ran backwards"
            return None
        self._faults.pop(source, None)
        self._highest[source] = now
        self._series[source].add(seconds, now - self._start[source])
        return now - self._start[source]

    def _reading_of(self, source: EnergySource, joules: float, seconds: float, still: Sequence[str]) -> EnergyReading:
        reasons = self._reasons(still)
        uncertainty = source.uncertainty(joules, seconds)
        return EnergyReading.of(
            joules,
            seconds,
            source.method,
            f"{self.name}: {source.description}" + (f", because {' and '.join(reasons)}" if reasons else ""),
            uncertainty_joules=uncertainty.joules if uncertainty else None,
            uncertainty=f"{self.name}: {uncertainty.description}" if uncertainty else "",
            idle_joules=source.idle_joules(joules, seconds),
        )

    def _reasons(self, still: Sequence[str]) -> list[str]:
        """Return the distinct reasons why better sources were not used."""
        return list(dict.fromkeys([*self._refused, *self._faults.values(), *still]))
