"""What a flow and the nodes that train for it have drawn together."""

from shunter.engine.executors.ledger import Ledger
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.types import EnergyReading


class FlowMeter:
    """Energy of the flow's own process and of the nodes that train for it; a `shunter.engine.stopping.Meter`.

    Args:
        here: meter of this process, entered.
        ledger: Ledger of the nodes.
    """

    def __init__(self, here: EnergyMeter, ledger: Ledger) -> None:
        self._here, self._ledger = here, ledger

    @property
    def reading(self) -> EnergyReading:
        """Joules of both, over the seconds that passed here; as trustworthy as the weaker of them."""
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
        """Since the flow's meter was entered."""
        return self._here.seconds_so_far()

    def joules_so_far(self) -> float | None:
        """The joules of `reading`."""
        here, there = self._here.joules_so_far(), self._ledger.total_with_branches().joules
        return None if here is None or there is None else here + there
