"""Time, energy and cost of a training job under a plan, from its simulated step, and their check against limits."""

from shunter.errors import InfeasibleError
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.distributed.planning.demand import ModelDemand
from shunter.extensions.distributed.planning.machine import Machine
from shunter.frozen import Frozen

JOULES_PER_KWH = 3.6e6


class PlanTotals(Frozen):
    """Time, energy and cost of some epochs, without validation and checkpoints.

    Attributes:
        kwh: Estimated energy: the busy power of all devices for the whole time; None if unknown.
        cost: Cost of all devices; None if the request names no price.
    """

    epochs: int
    hours: float
    kwh: float | None
    cost: float | None

    @property
    def sentence(self) -> str:
        """Return time, energy and cost of the plan as one sentence."""
        passes = "An epoch takes" if self.epochs == 1 else f"{self.epochs:,} epochs take"
        energy = "" if self.kwh is None else f", {self.kwh:.3g} kWh (estimated)"
        cost = "" if self.cost is None else f", {self.cost:.3g} of the price's currency"
        return f"{passes} {self.hours:.3g} hours (simulated){energy}{cost}."


def totals_of(demand: ModelDemand, machine: Machine, request: PlanRequest, step_seconds: float) -> PlanTotals:
    """Return the total time, energy and cost of a training job with this step time."""
    steps = request.epochs * -(-demand.workload.train_samples // request.batch_size)
    hours = steps * step_seconds / 3600
    watts = [device.profile.busy_watts for device in machine.devices]
    known = [quantity.value for quantity in watts if quantity is not None]
    power = sum(one * device.share for one, device in zip(known, machine.devices, strict=False))
    return PlanTotals(
        epochs=request.epochs,
        hours=hours,
        kwh=hours * 3600 * power / JOULES_PER_KWH if len(known) == len(watts) else None,
        cost=None if request.price_per_hour is None else hours * len(machine.devices) * request.price_per_hour,
    )


def check_limits(totals: PlanTotals, request: PlanRequest) -> None:
    """Raise if a training run under the plan breaks a limit; the fastest plan is the best in every limit.

    Raises:
        InfeasibleError: A limit is broken; the message names the first one.
    """
    limits = (
        ("--max-hours", request.max_hours, totals.hours, "hours"),
        ("--max-kwh", request.max_kwh, totals.kwh, "kWh"),
        ("--max-cost", request.max_cost, totals.cost, "in cost"),
    )
    for option, most, taken, unit in limits:
        if most is None:
            continue
        if taken is None:
            raise InfeasibleError(
                f"The power of the planned devices is unknown, so {option} cannot be checked: leave the option out."
            )
        if taken > most:
            raise InfeasibleError(
                f"The best plan takes {taken:.3g} {unit} for {totals.epochs:,} epochs, more than {option} "
                f"{most:g}: raise the limit, or use other or more devices."
            )
