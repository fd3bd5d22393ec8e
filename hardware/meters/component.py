"""One consumer of energy with the sources that may count it."""

from collections.abc import Sequence

from shunter.errors import HardwareError
from shunter.hardware.meters.series import JouleSeries
from shunter.hardware.meters.source import EnergySource
from shunter.hardware.types import EnergyReading


class Component:
    """One consumer of energy with the sources that may count it, the best first.

    All sources run from the start, so that the next one can stand in for the whole window when a counter turns out to
    stand still, to run backwards or to fail.

    Args:
        name: `processor` or the accelerator's name.
        sources: Ways to count, in the order in which they are trusted.
        refused: Reasons why better sources could not even be opened.
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
        """How often the best source, and those that must not be left alone, want to be read."""
        wishes = [
            source.interval_seconds for source in self._sources if source.needs_sampling or source is self._sources[0]
        ]
        return min(wishes, default=1.0)

    def start(self) -> None:
        """Read every source once; those that cannot be read are left out with the reason kept."""
        self._start, self._faults, self._series, self._backwards = {}, {}, {}, set()
        for source in self._sources:
            try:
                self._start[source] = source.joules()
                self._series[source] = JouleSeries()
            except HardwareError as error:
                self._faults[source] = str(error)
        self._highest = dict(self._start)

    def sample(self, seconds: float) -> None:
        """Read the best source and those that count wrong unless they are read often.

        Args:
            seconds: Time since `start`.
        """
        believed = False
        for source in self._start:
            if not believed or source.needs_sampling:
                joules = self._advance(source, seconds)
                believed = believed or (joules is not None and joules > 0)

    def read(self, seconds: float, *, look: bool = True) -> EnergyReading:
        """Joules since `start` from the first source that gives a believable answer.

        Args:
            seconds: Time since `start`.
            look: Whether the sources are read now; else what the last look at them has shown counts.
        """
        still = []
        for source in self._start:
            joules = self._advance(source, seconds) if look else self._seen(source)
            if joules is None:
                continue
            if joules > 0:
                self._used = source
                return self._reading_of(source, joules, seconds, still)
            still.append(f"the source '{source.description}' stood still")
        description = f"{self.name}: {' and '.join(self._reasons(still)) or 'no source'}"
        return EnergyReading(joules=None, seconds=seconds, mean_watts=None, method="unavailable", source=description)

    def series(self, reading: EnergyReading) -> JouleSeries:
        """Joules over time from the source that gave `reading`, the last of `read`, with that as its last point."""
        assert self._used is not None, "nothing was read"
        assert reading.joules is not None, "nothing was counted"
        series = self._series[self._used]
        series.finish(reading.seconds, reading.joules)
        return series

    def _advance(self, source: EnergySource, seconds: float) -> float | None:
        """Joules of a source since the start; None while it fails, and for good once it ran backwards."""
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

    def _seen(self, source: EnergySource) -> float | None:
        """Joules of a source since the start, by the last look at it; None where it failed then."""
        failed = source in self._backwards or source in self._faults
        return None if failed else self._highest[source] - self._start[source]

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
        """Why better sources did not count, each reason once."""
        return list(dict.fromkeys([*self._refused, *self._faults.values(), *still]))
