"""What trainings on nodes have drawn, as the nodes report it."""

from functools import reduce
from types import TracebackType
from typing import Self

from hardware.meter import EnergyMeter
from hardware.types import EnergyReading
from tasks.train import add_readings

NOTHING_YET = EnergyReading(
    joules=0.0, seconds=0.0, mean_watts=None, method="measured", source="no node has trained yet"
)


class Ledger:
    """Readings of all attempts to train on nodes, the running one last."""

    def __init__(self) -> None:
        self.readings: list[EnergyReading] = []

    def begin(self) -> None:
        """Another attempt begins."""
        self.readings.append(NOTHING_YET)

    def update(self, reading: EnergyReading) -> None:
        """What the running attempt has used so far."""
        self.readings[-1] = reading

    def total(self, since: int = 0) -> EnergyReading:
        """The attempts from the given one on, as one stretch of work."""
        readings = [one for one in self.readings[since:] if one is not NOTHING_YET]
        return reduce(add_readings, readings) if readings else NOTHING_YET


class FlowMeter:
    """Energy of the flow's own process and of the nodes that train for it; a `hardware.budget.Meter`.

    Args:
        here: meter of this process, entered.
        ledger: of the nodes.
    """

    def __init__(self, here: EnergyMeter, ledger: Ledger) -> None:
        self._here, self._ledger = here, ledger

    @property
    def reading(self) -> EnergyReading:
        """Joules of both, over the seconds that passed here; as trustworthy as the weaker of them."""
        here, there = self._here.reading, self._ledger.total()
        source = f"this process: {here.source}; nodes: {there.source}"
        if here.joules is None or there.joules is None:
            return EnergyReading(
                joules=None, seconds=here.seconds, mean_watts=None, method="unavailable", source=source
            )
        method = "measured" if here.method == there.method == "measured" else "estimated"
        return EnergyReading.of(here.joules + there.joules, here.seconds, method, source)

    def seconds_so_far(self) -> float:
        """Since the flow's meter was entered."""
        return self._here.seconds_so_far()

    def joules_so_far(self) -> float | None:
        """The joules of `reading`."""
        here, there = self._here.joules_so_far(), self._ledger.total().joules
        return None if here is None or there is None else here + there


class NodeMeter:
    """Energy of the trainings on nodes that begin while it is entered; read as an `EnergyMeter` is."""

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
        """Nothing is left to do: the nodes have reported."""

    @property
    def reading(self) -> EnergyReading:
        """What they have used so far."""
        return self._ledger.total(self._since)
