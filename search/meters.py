"""Energy of a whole search, from the meters of this machine or of the nodes that train the trials."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from shunter.engine.executors.role import ComputeTarget, Executor, Reading
from shunter.errors import RequestError
from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.types import Placement


class SearchMeters:
    """Several energy meters that are read as one.

    Args:
        meters: Entered meters; no two of them count the same energy.
    """

    def __init__(self, meters: Sequence[Reading]) -> None:
        self._meters = meters

    def joules(self) -> float | None:
        """Return the joules used so far; None if one of the meters cannot measure."""
        joules = [meter.reading.joules for meter in self._meters]
        return None if None in joules else sum(used for used in joules if used is not None)

    @property
    def source(self) -> str | None:
        """Source of the energy: `measured` or `estimated`; None if the energy is unknown."""
        methods = {reading.method for meter in self._meters if (reading := meter.reading).seconds}
        if not methods or "unavailable" in methods:
            return None
        return "measured" if methods == {"measured"} else "estimated"


@contextmanager
def open_meters(executors: Sequence[Executor], place: ComputeTarget | None) -> Iterator[SearchMeters]:
    """Open the energy meters of the whole search.

    The meters measure this machine, including the search method itself, or the nodes that train the trials.

    Args:
        executors: Executors of the trials.
        place: Target that trains instead of this machine.
    """
    if place is None:
        meters = [measure_energy(*(executor.placement.accelerator for executor in executors))]
    else:
        meters = [executor.meter() for executor in executors]
    with ExitStack() as stack:
        yield SearchMeters([stack.enter_context(meter) for meter in meters])


def check_energy_can_be_measured(placement: Placement) -> None:
    """Raise if no meter on this machine can measure energy.

    Raises:
        RequestError: No meter of energy works on this machine.
    """
    with measure_energy(placement.accelerator) as meter:
        reading = meter.reading
    if reading.method == "unavailable":
        raise RequestError(
            f"--search-cost energy requires an energy meter, and none works here ({reading.source}): use time or bytes."
        )
