"""What a run uses of its limits: measured, and kept for the next attempt where this one is interrupted."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pydantic import BaseModel

from engine.executors.energy import add_readings
from engine.executors.ray.cluster import Cluster
from hardware.budget import Budget, Meter
from hardware.meters.meter import measure_energy
from hardware.types import EnergyReading
from shunter.requests import JobRequest
from tasks.run_state import StateFolder


class Spent(BaseModel):
    """Time and energy that earlier attempts of this run have used of its limits."""

    energy: EnergyReading


class Spending:
    """Time and energy of a run, this attempt and the interrupted ones before it.

    Args:
        state: Folder that keeps what earlier attempts have used.
        meter: Entered meter of this attempt.
    """

    def __init__(self, state: StateFolder, meter: Meter) -> None:
        self._state = state
        self._meter = meter

    @property
    def total(self) -> EnergyReading:
        """All attempts so far."""
        earlier = self._earlier()
        return self._meter.reading if earlier is None else add_readings(earlier, self._meter.reading)

    def budget(self, request: JobRequest) -> Budget:
        """The limits of the request, less what earlier attempts have used of them."""
        return Budget.of(request.limits, request.pricing, self._meter, used=self._earlier())

    def save(self) -> None:
        """Keep the total for the next attempt."""
        self._state.remember("spent", Spent(energy=self.total))

    def _earlier(self) -> EnergyReading | None:
        spent = self._state.recall("spent", Spent)
        return spent.energy if spent else None


@contextmanager
def spending(state: StateFolder, accelerators: Sequence[str], cluster: Cluster | None = None) -> Iterator[Spending]:
    """Measure what the block uses, and keep that for the next attempt if the block does not come to its end.

    Args:
        state: Folder of the run.
        accelerators: Names of the accelerators of this machine that count.
        cluster: Nodes that train instead; then this process counts, and what they report.
    """
    with measure_energy(*accelerators) if cluster is None else measure_energy(scope="process") as meter:
        spent = Spending(state, meter if cluster is None else cluster.meter_with(meter))
        try:
            yield spent
        except BaseException:
            spent.save()
            raise
