"""A budget of time, energy and money that work asks, now and then, whether it is used up."""

from typing import Protocol, Self

from shunter.hardware.cost.billing import affordable_seconds
from shunter.hardware.types import EnergyReading
from shunter.requests import Limits, Pricing

JOULES_PER_KWH = 3.6e6
# How often a meter is asked: it answers by what its thread has read, and sums that up.
ENERGY_INTERVAL_SECONDS = 2.0


class Meter(Protocol):
    """What a budget asks of an entered meter; `shunter.hardware.meters.meter.EnergyMeter` is one."""

    @property
    def reading(self) -> EnergyReading:
        """The whole so far."""
        ...

    def seconds_so_far(self) -> float:
        """Since it was entered."""
        ...

    def joules_so_far(self) -> float | None:
        """Since it was entered; None when nothing can count them."""
        ...


class Budget:
    """Limits on a stretch of work that `meter` watches; `exhausted` is the `should_stop` of training and tuning.

    Args:
        meter: Entered meter whose seconds and joules count.
        max_seconds: Longest wall-clock time.
        max_joules: Most energy.
        max_cost: Most money by the exact time; requires `price_per_hour`.
        price_per_hour: Price of the machine, in the user's currency.
        used_seconds: Seconds that earlier attempts of an interrupted run have used.
        used_joules: Joules that earlier attempts of an interrupted run have used.
    """

    def __init__(
        self,
        *,
        meter: Meter,
        max_seconds: float | None = None,
        max_joules: float | None = None,
        max_cost: float | None = None,
        price_per_hour: float | None = None,
        used_seconds: float = 0.0,
        used_joules: float = 0.0,
    ) -> None:
        assert max_cost is None or price_per_hour is not None, "a limit on cost needs the price"
        self.meter = meter
        self.max_seconds = max_seconds
        self.max_joules = max_joules
        self.max_cost = max_cost
        self.price_per_hour = price_per_hour
        self.used_seconds = used_seconds
        self.used_joules = used_joules
        self._energy_asked_at = 0.0  # A counter needs a moment before its first difference means something.
        self._energy_answer: str | None = None

    @property
    def left_joules(self) -> float | None:
        """Energy that is left of the limit; None where there is none, or nothing counts."""
        used = self.joules
        return None if self.max_joules is None or used is None else self.max_joules - used

    @classmethod
    def of(cls, limits: Limits, pricing: Pricing, meter: Meter, *, used: EnergyReading | None = None) -> Self:
        """The limits of a request, less what earlier attempts have used of them.

        Args:
            limits: Limits on time, energy and cost.
            pricing: Price of the machine; with each started unit of time charged in full the limit on cost is kept.
            meter: Entered meter of this attempt.
            used: Time and energy of earlier attempts.
        """
        return cls(
            meter=meter,
            max_seconds=None if limits.max_hours is None else limits.max_hours * 3600,
            max_joules=None if limits.max_kwh is None else limits.max_kwh * JOULES_PER_KWH,
            max_cost=_affordable_cost(limits.max_cost, pricing),
            price_per_hour=pricing.price_per_hour,
            used_seconds=used.seconds if used else 0.0,
            used_joules=(used.joules or 0.0) if used else 0.0,
        )

    @property
    def seconds(self) -> float:
        """Used so far, earlier attempts included."""
        return self.used_seconds + self.meter.seconds_so_far()

    @property
    def joules(self) -> float | None:
        """Used so far, earlier attempts included; None when the energy cannot be counted here."""
        joules = self.meter.joules_so_far()
        return None if joules is None else self.used_joules + joules

    @property
    def cost(self) -> float | None:
        """Money used so far, None without a price."""
        return None if self.price_per_hour is None else self.seconds / 3600 * self.price_per_hour

    def exhausted(self) -> str | None:
        """Which limit is used up, in one sentence; None while the work may go on."""
        seconds = self.meter.seconds_so_far()
        used_seconds = self.used_seconds + seconds
        if self.max_seconds is not None and used_seconds >= self.max_seconds:
            return f"The time limit of {self.max_seconds / 3600:.4g} h is used up."
        if self.max_cost is not None and used_seconds / 3600 * (self.price_per_hour or 0.0) >= self.max_cost:
            return f"The cost limit of {self.max_cost:.4g} is used up."
        return None if self.max_joules is None else self._energy_exhausted(self.max_joules, seconds)

    def _energy_exhausted(self, max_joules: float, seconds: float) -> str | None:
        """Ask the meter at most once in `ENERGY_INTERVAL_SECONDS`, so that a training may ask after every step."""
        if seconds - self._energy_asked_at >= ENERGY_INTERVAL_SECONDS:
            self._energy_asked_at = seconds
            self._energy_answer = self._judge_energy(max_joules)
        return self._energy_answer

    def _judge_energy(self, max_joules: float) -> str | None:
        limit = f"{max_joules / JOULES_PER_KWH:.4g} kWh"
        used = self.joules
        if used is None:
            # A hard limit that nobody can watch would be no limit.
            source = self.meter.reading.source
            return f"The energy limit of {limit} cannot be kept, since energy is unavailable: {source}."
        return f"The energy limit of {limit} is used up." if used >= max_joules else None


def _affordable_cost(limit: float | None, pricing: Pricing) -> float | None:
    """What may be spent by the exact time, so that the bill keeps the limit."""
    if limit is None or pricing.price_per_hour is None:
        return limit
    return affordable_seconds(limit, pricing.price_per_hour, pricing.billing) * pricing.price_per_hour / 3600
