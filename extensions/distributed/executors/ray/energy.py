"""Combined energy of a flow and of the nodes that train for it."""

from shunter.engine.executors.ledger import Ledger
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.types import EnergyReading


class FlowMeter:
    """Energy of the flow's own process and of the nodes that train for it; a `shunter.engine.stopping.Meter`.

    Args:
        here: entered meter of this process.
        ledger: Ledger of the nodes.
    """

    def __init__(self, here: EnergyMeter, ledger: Ledger) -> None:
        self._here, self._ledger = here, ledger

    @property
    def reading(self) -> EnergyReading:
        """Return the joules of both over the seconds of this process; estimated or unavailable if one of them is."""
        here, there = self._here.reading, self._ledger.total_with_branches()
        source = f"this process: {here.source}; nodes: {there.source}"
        if here.joules is None or there.joules is None:
            return EnergyReading(
                joules=None, seconds=here.seconds, mean_watts=None, method="unavailable", source=source
            )
        method = "measured" if here.method == there.method == "measured" else "estimated"
        measured = here.measured_joules + there.measured_joules
        return EnergyReading.of(here.joules + there.joules, here.seconds, method, source, measured_joules=measured)

    def seconds_so_far(self) -> float:
        """Return the seconds since the flow's meter was entered."""
        return self._here.seconds_so_far()

    def joules_so_far(self) -> float | None:
        """Return the joules of `reading`."""
        here, there = self._here.joules_so_far(), self._ledger.total_with_branches().joules
        return None if here is None or there is None else here + there
