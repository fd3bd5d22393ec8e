"""Energy of a training that may take several attempts."""

from pathlib import Path

from engine.storage import read_json, write_text
from hardware.meter import EnergyMeter
from hardware.types import EnergyReading


class EnergyRecord:
    """Adds the energy of this attempt to that of the earlier ones, which were saved with their checkpoints.

    Args:
        path: file of the sum so far.
        meter: of this attempt, entered.
    """

    def __init__(self, path: Path, meter: EnergyMeter) -> None:
        self._path = path
        self._meter = meter
        self._earlier = EnergyReading.model_validate(read_json(path)) if path.exists() else None

    def reading(self) -> EnergyReading:
        """All attempts so far."""
        now = self._meter.reading
        return now if self._earlier is None else add_readings(self._earlier, now)

    def save(self) -> None:
        """Keep the sum for the next attempt."""
        write_text(self._path, self.reading().model_dump_json())


def add_readings(first: EnergyReading, second: EnergyReading) -> EnergyReading:
    """Two stretches of work as one: as trustworthy as the weaker reading, unknown when one is unknown."""
    seconds = first.seconds + second.seconds
    source = first.source if first.source == second.source else f"{first.source}; then {second.source}"
    if first.joules is None or second.joules is None:
        return EnergyReading(joules=None, seconds=seconds, mean_watts=None, method="unavailable", source=source)
    method = "measured" if first.method == second.method == "measured" else "estimated"
    return EnergyReading.of(first.joules + second.joules, seconds, method, source)
