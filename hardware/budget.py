"""A budget of time, energy and money that work asks, now and then, whether it is used up."""

from dataclasses import dataclass

from hardware.meter import EnergyMeter

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits on a stretch of work that `meter` watches; `exhausted` is the `should_stop` of training and tuning.

    Attributes:
        meter: an entered meter; its seconds and joules count.
        max_seconds: longest wall-clock time.
        max_joules: most energy.
        max_cost: most money; needs `price_per_hour`.
        price_per_hour: price of the machine, in the user's currency.
        used_seconds: used by earlier attempts of an interrupted run.
        used_joules: used by earlier attempts of an interrupted run.
    """

    meter: EnergyMeter
    max_seconds: float | None = None
    max_joules: float | None = None
    max_cost: float | None = None
    price_per_hour: float | None = None
    used_seconds: float = 0.0
    used_joules: float = 0.0

    def __post_init__(self) -> None:
        assert self.max_cost is None or self.price_per_hour is not None, "a limit on cost needs the price"

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
        if self.max_seconds is not None and self.seconds >= self.max_seconds:
            return f"The time limit of {self.max_seconds / 3600:.4g} h is used up."
        if self.max_cost is not None and self.cost is not None and self.cost >= self.max_cost:
            return f"The cost limit of {self.max_cost:.4g} is used up."
        if self.max_joules is not None:
            return self._energy_exhausted(self.max_joules)
        return None

    def _energy_exhausted(self, max_joules: float) -> str | None:
        limit = f"{max_joules / JOULES_PER_KWH:.4g} kWh"
        if self.joules is None:
            # A hard limit that nobody can watch would be no limit.
            return (
                f"The energy limit of {limit} cannot be kept, since energy is unavailable: {self.meter.reading.source}."
            )
        return f"The energy limit of {limit} is used up." if self.joules >= max_joules else None
