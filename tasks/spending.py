"""Time and energy that a run uses, measured and saved every few seconds, so that a resumed run can count them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import TypeVar

from pydantic import BaseModel

from shunter.engine.executors.energy import add_readings
from shunter.engine.executors.role import Cluster
from shunter.engine.stopping import WORK, Budget, Meter, RunClock, StoppedError
from shunter.engine.stopping_text import stop_text
from shunter.errors import RequestError
from shunter.hardware.catalogue.prices import Prices
from shunter.hardware.cost.billing import affordable_seconds
from shunter.hardware.devices.discovery import local_accelerators
from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.reservation import watching
from shunter.hardware.types import EnergyReading
from shunter.hardware.units import JOULES_PER_KWH
from shunter.parallel import periodic
from shunter.planner.decide import Decision
from shunter.requests import JobRequest, Limits, Pricing
from shunter.tasks.run_state import StateFolder
from shunter.tasks.step_clock import ProcessEnergy

Asked = TypeVar("Asked", bound=JobRequest)


class Spent(BaseModel):
    """Time and energy that earlier attempts of a run have used.

    Attributes:
        energy: Time and energy of the work.
        start: Time and energy before the work; None if they were not counted.
        forgiven_joules: Joules of attempts that a limit ended without a result, which limits no longer count.
    """

    energy: EnergyReading
    start: EnergyReading | None = None
    forgiven_joules: float = 0.0


class Spending:
    """Time and energy of a run, with those of its interrupted attempts.

    Attributes:
        start: Time and energy of all attempts before their work; None if they are not counted.

    Args:
        state: Folder with the time and energy of earlier attempts.
        clock: Clock of the command.
        meter: Running meter of this attempt.
        before: Time and energy of this attempt before the work; None if they are not counted.
    """

    def __init__(self, state: StateFolder, clock: RunClock, meter: Meter, before: EnergyReading | None = None) -> None:
        self._state, self._clock, self._meter = state, clock, meter
        spent = state.recall("spent", Spent)
        self._earlier = spent.energy if spent else None
        self._forgiven_joules = spent.forgiven_joules if spent else 0.0
        starts = [one for one in (spent.start if spent else None, before) if one is not None]
        self.start = reduce(add_readings, starts) if starts else None
        self._saving = threading.Lock()

    @property
    def total(self) -> EnergyReading:
        """Time and energy of all attempts so far, from the choice of the placement on."""
        return self._meter.reading if self._earlier is None else add_readings(self._earlier, self._meter.reading)

    def budget(self, request: JobRequest, limits: Limits | None = None) -> Budget:
        """Return the limits, reduced by what earlier attempts have used.

        Args:
            request: Request of the run, with the price.
            limits: Limits to watch; those of the request if None.
        """
        used = sum((one.joules or 0.0) for one in (self.start, self._earlier) if one) - self._forgiven_joules
        return _budget(limits or request.limits, request.pricing, self._clock, self._meter, used)

    def save(self) -> None:
        """Save the total for the next attempt."""
        with self._saving:
            spent = Spent(energy=self.total, start=self.start, forgiven_joules=self._forgiven_joules)
            self._state.remember("spent", spent)


@contextmanager
def limits_begun_anew(state: StateFolder, clock: RunClock) -> Iterator[None]:
    """Let limits count from the start of the next attempt if a limit ends the block without a result.

    The next attempt reuses what was trained; time and energy of the ended attempt stay in the totals.
    """
    try:
        yield
    except StoppedError as error:
        if error.reason.limits_request:
            clock.count_anew()
            if spent := state.recall("spent", Spent):
                joules = sum((one.joules or 0.0) for one in (spent.start, spent.energy) if one)
                state.remember("spent", spent.model_copy(update={"forgiven_joules": joules}))
        raise


def check_time(request: JobRequest, clock: RunClock, needed_seconds: float) -> None:
    """Raise if the limits on time and cost leave less time than the next step needs.

    Raises:
        StoppedError: A limit is expected to be reached within the step.
    """
    limits = request.limits.model_copy(update={"max_kwh": None})
    budget = _budget(limits, charged(request).pricing, clock, measure_energy())
    budget.ending_seconds = needed_seconds
    require_room(budget)


def _budget(limits: Limits, pricing: Pricing, clock: RunClock, meter: Meter, used_joules: float = 0.0) -> Budget:
    return Budget(
        clock=clock,
        meter=meter,
        max_seconds=None if limits.max_hours is None else limits.max_hours * 3600,
        max_joules=None if limits.max_kwh is None else limits.max_kwh * JOULES_PER_KWH,
        max_cost=affordable_cost(limits.max_cost, pricing),
        price_per_hour=pricing.price_per_hour,
        used_joules=used_joules,
    )


def require_room(budget: Budget) -> None:
    """Raise if a budget has no time for a training run, apart from reserved time.

    Raises:
        StoppedError: A limit is expected to be reached.
    """
    if reason := budget.exhausted():
        details = {**reason.details, "used_seconds": budget.seconds, "needed_seconds": budget.ending_seconds}
        reason = replace(reason, details=details)
        raise StoppedError(stop_text(reason), reason)


def affordable_cost(limit: float | None, pricing: Pricing) -> float | None:
    """Return the cost of the longest time that a cost limit pays for, since providers bill whole billing units.

    None without a limit; the limit itself without a price.
    """
    if limit is None or pricing.price_per_hour is None:
        return limit
    return affordable_seconds(limit, pricing.price_per_hour, pricing.billing) * pricing.price_per_hour / 3600


def charged(request: Asked, decision: Decision | None = None) -> Asked:
    """Return the request with the price of its work from the file of prices, if there is one.

    Args:
        request: Request of the run.
        decision: Decision on the placement. None, before the choice, uses the price of this machine's most expensive
            accelerator, so that a cost limit is kept.

    Raises:
        RequestError: The file of prices cannot be read, or lacks a price that a limit needs.
    """
    path = request.pricing.prices_path
    if path is None:
        return request
    if decision:
        price = decision.given_price_per_hour
    else:
        prices = Prices.read(path)
        found = [prices.price_per_hour(accelerator) for accelerator in local_accelerators()]
        price = max((price for price in found if price is not None), default=None)
    if price is None and request.needs_price:
        raise RequestError(
            f"The limit {request.needs_price} needs a price, but {path} has no price for this machine: add it."
        )
    return request.model_copy(update={"price_per_hour": price})


@contextmanager
def spending(
    state: StateFolder, clock: RunClock, cluster: Cluster | None = None, outside: ProcessEnergy | None = None
) -> Iterator[Spending]:
    """Measure time and energy of the block; save them for the next attempt if the block fails.

    Both are also saved every few seconds, because a killed process cannot save them. The energy
    of an accelerator counts only while this process has reserved it.

    Args:
        state: Folder of the run.
        clock: Clock of the command, which counts the block as `WORK`.
        cluster: Nodes that train instead of this machine; their reported energy is added to that of this process.
        outside: Energy of this process outside the block; the energy of the block is excluded from it.
    """
    before = outside.take() if outside else None
    with measure_energy() as meter, watching(meter.count_only), clock.counting(WORK):
        spent = Spending(state, clock, meter if cluster is None else cluster.meter_with(meter), before)
        with periodic(spent.save):
            try:
                yield spent
            except BaseException:
                spent.save()
                raise
            finally:
                if outside:
                    outside.restart()
