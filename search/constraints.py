"""The user's limits as constraints of a search: by how much a trained point breaks each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shunter.hardware.units import JOULES_PER_KWH
from shunter.requests import Limits, TrainRequest

GIB = 2**30
ESTIMATED = frozenset({"max_hours", "max_kwh", "max_cost"})  # of the training to the end, which has not been
NEAR_AUC = 0.01  # that the ensemble may make up for: what it reaches is judged before it is registered


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a trial measured of its point.

    Attributes:
        auc: AUC on the validation part; None before the first validation.
        memory_bytes: Most memory that the training used; None of one that was stopped early.
        watts: Mean power while it trained; None where no meter works.
        epochs: Expected epochs of training the point to the end.
        pass_seconds: Seconds of a pass over the data, validation included.
        pass_joules: Joules of a pass; None where no meter works.
    """

    auc: float | None
    memory_bytes: int | None
    watts: float | None
    epochs: float
    pass_seconds: float
    pass_joules: float | None


@dataclass(frozen=True, kw_only=True)
class FinalTraining:
    """What may be spent on training the winners to the end.

    Attributes:
        members: Models of the ensemble.
        seconds: Time that the limit leaves for it; None without a limit.
        joules: Energy that the limit leaves for it; None without a limit.
        money: Money that the limit leaves for it; None without a limit.
        price_per_hour: Price of the machine, in the user's currency.
    """

    members: int
    seconds: float | None
    joules: float | None
    money: float | None
    price_per_hour: float | None

    @classmethod
    def of(cls, request: TrainRequest, used_seconds: float = 0.0, used_joules: float = 0.0) -> "FinalTraining":
        """The limits less what was used before the search, and less what the search may use by a budget of its own.

        Args:
            request: With limits and budget.
            used_seconds: Before the search.
            used_joules: Before the search.
        """
        limits, price = request.limits, request.pricing.price_per_hour
        seconds = used_seconds + (request.search.search_minutes or 0.0) * 60
        joules = used_joules + (request.search.search_kwh or 0.0) * JOULES_PER_KWH
        return cls(
            members=request.ensemble.trained,
            seconds=None if limits.max_hours is None else limits.max_hours * 3600 - seconds,
            joules=None if limits.max_kwh is None else limits.max_kwh * JOULES_PER_KWH - joules,
            money=None if limits.max_cost is None or price is None else limits.max_cost - seconds / 3600 * price,
            price_per_hour=price,
        )


def violations_of(measured: Measured, limits: Limits, final: FinalTraining) -> dict[str, float]:
    """For each limit that is set, by how much the point breaks it, in the limit's own unit; kept at 0 and below.

    Memory, power and AUC are those of the trial. Hours, energy and cost are estimated for training the point to the end
    with every member of the ensemble, from what a pass over the data took in the trial. What was not measured is left
    out.
    """
    values: dict[str, float] = {}
    if limits.min_auc is not None and measured.auc is not None:
        values["min_auc"] = limits.min_auc - measured.auc
    if limits.max_memory_gib is not None and measured.memory_bytes is not None:
        values["max_memory_gib"] = measured.memory_bytes / GIB - limits.max_memory_gib
    if limits.max_watts is not None and measured.watts is not None:
        values["max_watts"] = measured.watts - limits.max_watts
    passes = measured.epochs * final.members
    seconds = passes * measured.pass_seconds
    if final.seconds is not None:
        values["max_hours"] = (seconds - final.seconds) / 3600
    if final.joules is not None and measured.pass_joules is not None:
        values["max_kwh"] = (passes * measured.pass_joules - final.joules) / JOULES_PER_KWH
    if final.money is not None and final.price_per_hour is not None:
        values["max_cost"] = seconds / 3600 * final.price_per_hour - final.money
    return values


def breaks_a_measured_limit(violations: Mapping[str, float]) -> bool:
    """Whether a limit is broken by what was measured, and not by an estimate of the training to come.

    An AUC that just misses does not count yet: an ensemble of such models may reach it.
    """
    allowed = {"min_auc": NEAR_AUC}
    return any(value > allowed.get(name, 0.0) for name, value in violations.items() if name not in ESTIMATED)


def format_violations(violations: Mapping[str, float]) -> str:
    """The broken limits for a person: `--min-auc by 0.02, --max-memory-gib by 1.3`."""
    broken: Sequence[str] = [
        f"--{name.replace('_', '-')} by {value:.3g}" for name, value in violations.items() if value > 0
    ]
    return ", ".join(broken)
