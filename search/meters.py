"""What a whole search draws, by the meters of this machine or of the nodes that train for it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from shunter.engine.executors.role import Executor, Place, Reading
from shunter.errors import RequestError
from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.types import Placement


class SearchMeters:
    """Several meters read as one.

    Args:
        meters: Entered meters, none of which counts what another one counts.
    """

    def __init__(self, meters: Sequence[Reading]) -> None:
        self._meters = meters

    def joules(self) -> float | None:
        """Used so far; None where one of the meters cannot count."""
        joules = [meter.reading.joules for meter in self._meters]
        return None if None in joules else sum(used for used in joules if used is not None)

    @property
    def source(self) -> str | None:
        """Whether the energy is `measured` or `estimated`; None where it is not known."""
        methods = {reading.method for meter in self._meters if (reading := meter.reading).seconds}
        if not methods or "unavailable" in methods:
            return None
        return "measured" if methods == {"measured"} else "estimated"


@contextmanager
def open_meters(executors: Sequence[Executor], place: Place | None) -> Iterator[SearchMeters]:
    """Meters of the whole search: this machine, with what the method does itself, or the nodes that train for it.

    Args:
        executors: Executors of the trials.
        place: Place that trains instead of this machine.
    """
    if place is None:
        meters = [measure_energy(*(executor.placement.accelerator for executor in executors))]
    else:
        meters = [executor.meter() for executor in executors]
    with ExitStack() as stack:
        yield SearchMeters([stack.enter_context(meter) for meter in meters])


def check_energy_can_be_measured(placement: Placement) -> None:
    """Raise when energy is to be weighed and nothing here can tell it.

    Raises:
        RequestError: No meter of energy works on this machine.
    """
    with measure_energy(placement.accelerator) as meter:
        reading = meter.reading
    if reading.method == "unavailable":
        raise RequestError(
            f"--search-cost energy requires an energy meter, and none works here ({reading.source}): use time or bytes."
        )
