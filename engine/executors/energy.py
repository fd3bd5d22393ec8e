"""Energy of a training run over several attempts, and of the remote training runs that report theirs."""

import threading
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shunter.engine.checkpoint.checked_files import read_json, write_json
from shunter.hardware.types import EnergyReading

if TYPE_CHECKING:
    from shunter.engine.executors.role import Reading


class EnergyRecord:
    """Sum of the energy of this attempt and of earlier attempts, which is saved with the checkpoints."""

    def __init__(self, path: Path, meter: "Reading") -> None:
        self._path = path
        self._meter = meter
        self._saving = threading.Lock()
        self._earlier = EnergyReading.model_validate(read_json(path)) if path.exists() else None

    def reading(self) -> EnergyReading:
        """Return the energy of all attempts so far."""
        now = self._meter.reading
        return now if self._earlier is None else add_readings(self._earlier, now)

    def save(self) -> None:
        """Save the sum for the next attempt; thread-safe."""
        with self._saving:
            write_json(self._path, self.reading().model_dump_json())


def add_readings(first: EnergyReading, second: EnergyReading) -> EnergyReading:
    """Return the energy of two consecutive periods of work from the reading of each.

    The sum is estimated if one reading is estimated, and unavailable if one is unavailable. The power samples of the
    second period follow those of the first; the time between the periods is not counted.
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


def add_parallel_readings(readings: Sequence[EnergyReading]) -> EnergyReading:
    """Return the energy of several parallel processes: the sum of joules, and the longest seconds."""
    seconds = max(reading.seconds for reading in readings)
    total = reduce(add_readings, readings)
    if total.joules is None:
        return total.model_copy(update={"seconds": seconds})
    watts = total.joules / seconds if seconds > 0 else None
    return total.model_copy(update={"seconds": seconds, "mean_watts": watts, "power": ()})


def _both(first: str, second: str) -> str:
    """Join the texts on source or uncertainty of two energy readings; equal texts appear once."""
    joint = "; then "
    return joint.join(dict.fromkeys(filter(None, (*first.split(joint), *second.split(joint)))))


NOTHING_YET = EnergyReading(
    joules=0.0, seconds=0.0, mean_watts=None, method="measured", source="no training has reported energy yet"
)


class Ledger:
    """Energy readings of all attempts to train, the running attempt last.

    Parallel training runs have one branch for each compute target.
    """

    def __init__(self) -> None:
        self.readings: list[EnergyReading] = []
        self.branches: list[Ledger] = []

    def branch(self) -> "Ledger":
        """Add and return a branch for attempts that run in parallel on another compute target."""
        self.branches.append(Ledger())
        return self.branches[-1]

    def begin(self) -> None:
        """Add an entry for the energy of a new training attempt."""
        self.readings.append(NOTHING_YET)

    def update(self, reading: EnergyReading) -> None:
        """Set the energy that the running attempt has used so far."""
        self.readings[-1] = reading

    def close(self, reason: str) -> None:
        """Mark the energy of the running attempt as unknown, with the reason, if it ended without any report."""
        if self.readings[-1] is NOTHING_YET:
            self.readings[-1] = EnergyReading(
                joules=None, seconds=0.0, mean_watts=None, method="unavailable", source=reason
            )

    def total(self, since: int = 0) -> EnergyReading:
        """Return the energy and seconds of all attempts from index `since` on, without those of branches."""
        return _sum(self.readings[since:])

    def total_with_branches(self) -> EnergyReading:
        """Return the energy of all attempts, including the branches; seconds of parallel attempts add up."""
        return _sum([*self.readings, *(reading for branch in self.branches for reading in branch.readings)])


class LedgerMeter:
    """Meter of the training runs that begin within its `with` block, with the interface of `EnergyMeter`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._since = 0

    def __enter__(self) -> Self:
        """Start to count the energy of training runs."""
        self._since = len(self._ledger.readings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do nothing: the training runs have already reported their energy."""

    @property
    def reading(self) -> EnergyReading:
        """Return the energy that training runs have used since the block was entered."""
        return self._ledger.total(self._since)


def _sum(readings: list[EnergyReading]) -> EnergyReading:
    said = [reading for reading in readings if reading is not NOTHING_YET]
    return reduce(add_readings, said) if said else NOTHING_YET
