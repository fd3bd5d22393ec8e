"""What trainings elsewhere have drawn, as they report it: on nodes of a cluster, in processes of their own."""

from functools import reduce
from types import TracebackType
from typing import Self

from shunter.engine.executors.energy import add_readings
from shunter.hardware.types import EnergyReading

NOTHING_YET = EnergyReading(
    joules=0.0, seconds=0.0, mean_watts=None, method="measured", source="nothing has trained there yet"
)


class Ledger:
    """Readings of all attempts to train, the running one last.

    Where several trainings run at a time, each place has a branch of its own.
    """

    def __init__(self) -> None:
        self.readings: list[EnergyReading] = []
        self.branches: list[Ledger] = []

    def branch(self) -> "Ledger":
        """Another place, whose attempts do not follow upon those here."""
        self.branches.append(Ledger())
        return self.branches[-1]

    def begin(self) -> None:
        """Another attempt begins."""
        self.readings.append(NOTHING_YET)

    def update(self, reading: EnergyReading) -> None:
        """What the running attempt has used so far."""
        self.readings[-1] = reading

    def close(self, reason: str) -> None:
        """The running attempt ended without a last word; where it said nothing at all, what it used is unknown."""
        if self.readings[-1] is NOTHING_YET:
            self.readings[-1] = EnergyReading(
                joules=None, seconds=0.0, mean_watts=None, method="unavailable", source=reason
            )

    def total(self, since: int = 0) -> EnergyReading:
        """The attempts here from the given one on, as one stretch of work."""
        return _sum(self.readings[since:])

    def total_with_branches(self) -> EnergyReading:
        """All attempts here and in the branches; the seconds of several that ran at a time add up."""
        return _sum([*self.readings, *(reading for branch in self.branches for reading in branch.readings)])


class LedgerMeter:
    """Energy of the trainings that begin while it is entered; read as an `EnergyMeter` is."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._since = 0

    def __enter__(self) -> Self:
        """Begin to count."""
        self._since = len(self._ledger.readings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing is left to do: those that train have reported."""

    @property
    def reading(self) -> EnergyReading:
        """What they have used so far."""
        return self._ledger.total(self._since)


def _sum(readings: list[EnergyReading]) -> EnergyReading:
    said = [reading for reading in readings if reading is not NOTHING_YET]
    return reduce(add_readings, said) if said else NOTHING_YET
