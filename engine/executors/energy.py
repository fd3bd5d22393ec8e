"""Energy of a training that may take several attempts."""

import threading
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from shunter.engine.checkpoint.storage import read_json, write_json
from shunter.engine.executors.role import Reading
from shunter.hardware.types import EnergyReading


class EnergyRecord:
    """Adds the energy of this attempt to that of the earlier ones, which were saved with their checkpoints.

    Args:
        path: file of the sum so far.
        meter: Meter of this attempt, entered.
    """

    def __init__(self, path: Path, meter: Reading) -> None:
        self._path = path
        self._meter = meter
        self._saving = threading.Lock()
        self._earlier = EnergyReading.model_validate(read_json(path)) if path.exists() else None

    def reading(self) -> EnergyReading:
        """All attempts so far."""
        now = self._meter.reading
        return now if self._earlier is None else add_readings(self._earlier, now)

    def save(self) -> None:
        """Keep the sum for the next attempt; any thread may."""
        with self._saving:
            write_json(self._path, self.reading().model_dump_json())


def add_readings(first: EnergyReading, second: EnergyReading) -> EnergyReading:
    """Two stretches of work as one: as trustworthy as the weaker reading, unknown when one is unknown.

    The watts of the second follow those of the first; time that passed between the two is no part of the work.
    """
    seconds = first.seconds + second.seconds
    source = _both(first.source, second.source)
    if first.joules is None or second.joules is None:
        return EnergyReading(joules=None, seconds=seconds, mean_watts=None, method="unavailable", source=source)
    errors = [reading.uncertainty_joules for reading in (first, second) if reading.uncertainty_joules is not None]
    later = [sample.model_copy(update={"seconds": first.seconds + sample.seconds}) for sample in second.power]
    return EnergyReading.of(
        first.joules + second.joules,
        seconds,
        "measured" if first.method == second.method == "measured" else "estimated",
        source,
        uncertainty_joules=sum(errors) if len(errors) == 2 else None,
        uncertainty=_both(first.uncertainty, second.uncertainty),
        idle_joules=None
        if first.idle_joules is None or second.idle_joules is None
        else first.idle_joules + second.idle_joules,
        power=(*first.power, *later),
        measured_joules=first.measured_joules + second.measured_joules,
    )


def side_by_side(readings: Sequence[EnergyReading]) -> EnergyReading:
    """What several processes have used during one stretch of work: the joules of all, the seconds of the longest."""
    seconds = max(reading.seconds for reading in readings)
    total = reduce(add_readings, readings)
    if total.joules is None:
        return total.model_copy(update={"seconds": seconds})
    watts = total.joules / seconds if seconds > 0 else None
    return total.model_copy(update={"seconds": seconds, "mean_watts": watts, "power": ()})


def _both(first: str, second: str) -> str:
    """Two descriptions as one, each once."""
    return first if first == second else "; then ".join(filter(None, (first, second)))
