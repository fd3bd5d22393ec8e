"""Why a training or a search ends, as values that later steps decide by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

from shunter.errors import TrainingError
from shunter.hardware.units import JOULES_PER_KWH

if TYPE_CHECKING:
    from shunter.hardware.types import EnergyReading


class StopKind(StrEnum):
    """What ended a training or a search."""

    MAX_EPOCHS = "max_epochs"  # the schedule's last epoch
    PATIENCE = "patience"  # as many epochs without a better validation as the schedule allows
    SOLVED = "solved"  # a closed form has one pass
    EARLIER = "earlier"  # the model was trained by an earlier run
    TRIALS = "trials"  # the search made all its trials
    EXHAUSTED = "exhausted"  # the search method has no other point to propose
    LIMIT = "limit"  # a limit of the request
    SEARCH_BUDGET = "search_budget"  # the budget of the search alone
    SHARE = "share"  # the part of the search's budget that one step may use
    EXPLORATION = "exploration"  # the time of an exploration
    PRUNED = "pruned"  # others were better
    LOOK = "look"  # a brief look at a model family has ended
    INTERRUPTED = "interrupted"  # a person or another process ended it


class StopLimit(StrEnum):
    """Quantity whose limit ended a training or a search."""

    TIME = "time"
    ENERGY = "energy"
    COST = "cost"


# How often a meter is asked: it answers by what its thread has read, and sums that up.
ENERGY_INTERVAL_SECONDS = 2.0
SCHEDULED = frozenset((StopKind.MAX_EPOCHS, StopKind.PATIENCE, StopKind.SOLVED, StopKind.EARLIER))


@dataclass(frozen=True)
class StopReason:
    """Reason why a training or a search ended.

    Attributes:
        kind: What ended it.
        limit: Quantity that was used up; None where none was.
        details: Figures of the limit, with units in their names.
    """

    kind: StopKind
    limit: StopLimit | None = None
    details: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def is_scheduled(self) -> bool:
        """Return True if the training came to the end of its own schedule."""
        return self.kind in SCHEDULED

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the reason that `dataclasses.asdict` turned into plain values."""
        limit = values["limit"]
        return cls(StopKind(values["kind"]), limit and StopLimit(limit), dict(values["details"]))


ShouldStop = Callable[[], StopReason | None]


class StoppedError(TrainingError):
    """A limit ended the work before there was a result.

    Attributes:
        reason: What ended it.
    """

    def __init__(self, message: str, reason: StopReason) -> None:
        super().__init__(message, reason)
        self.reason = reason

    @property
    def is_exploration(self) -> bool:
        """Return True if an exploration took its time, after which a run goes on at the best known placement."""
        return self.reason.kind is StopKind.EXPLORATION

    def __str__(self) -> str:
        """Return the message."""
        return str(self.args[0])


class Meter(Protocol):
    """What a budget asks of an entered meter; `shunter.hardware.meters.meter.EnergyMeter` is one."""

    @property
    def reading(self) -> "EnergyReading":
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
        self._energy_answer: StopReason | None = None

    @property
    def left_joules(self) -> float | None:
        """Energy that is left of the limit; None where there is none, or nothing counts."""
        used = self.joules
        return None if self.max_joules is None or used is None else self.max_joules - used

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

    def exhausted(self) -> StopReason | None:
        """Return the limit that is used up; None while the work may go on."""
        seconds = self.meter.seconds_so_far()
        used_seconds = self.used_seconds + seconds
        if self.max_seconds is not None and used_seconds >= self.max_seconds:
            return StopReason(StopKind.LIMIT, StopLimit.TIME, {"hours": self.max_seconds / 3600})
        if self.max_cost is not None and used_seconds / 3600 * (self.price_per_hour or 0.0) >= self.max_cost:
            return StopReason(StopKind.LIMIT, StopLimit.COST, {"cost": self.max_cost})
        return None if self.max_joules is None else self._energy_exhausted(self.max_joules, seconds)

    def _energy_exhausted(self, max_joules: float, seconds: float) -> StopReason | None:
        """Ask the meter at most once in `ENERGY_INTERVAL_SECONDS`, so that a training may ask after every step."""
        if seconds - self._energy_asked_at >= ENERGY_INTERVAL_SECONDS:
            self._energy_asked_at = seconds
            self._energy_answer = self._judge_energy(max_joules)
        return self._energy_answer

    def _judge_energy(self, max_joules: float) -> StopReason | None:
        details: dict[str, float | str] = {"kwh": max_joules / JOULES_PER_KWH}
        used = self.joules
        if used is None:  # a limit that nothing can measure ends the work at once
            details["unavailable"] = self.meter.reading.source
        elif used < max_joules:
            return None
        return StopReason(StopKind.LIMIT, StopLimit.ENERGY, details)
