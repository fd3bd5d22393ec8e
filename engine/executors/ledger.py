"""Ledger of the energy that remote training runs report: on nodes of a cluster, and in separate processes."""

from functools import reduce
from types import TracebackType
from typing import Self

from shunter.engine.executors.energy import add_readings
from shunter.hardware.types import EnergyReading

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
