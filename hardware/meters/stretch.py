"""The part of a meter's time in which one component counts."""

from shunter.hardware.meters.component import Component
from shunter.hardware.meters.series import JouleSeries
from shunter.hardware.types import EnergyReading


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
