"""The user's limits as constraints of a search: the amount by which a trained point exceeds each limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shunter.hardware.units import JOULES_PER_KWH
from shunter.requests import Limits, TrainRequest

GIB = 2**30
ESTIMATED = frozenset({"max_hours", "max_kwh", "max_cost"})  # limits of the final training, which is only estimated
NEAR_AUC = 0.01  # tolerated AUC below the limit, since an ensemble may gain as much; its AUC is checked later


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurements of a trial.

    Attributes:
        auc: AUC on the validation part; None before the first validation.
        memory_bytes: Peak memory of the training; None if the training was stopped early.
        watts: Mean power during the training; None if no meter works.
        epochs: Expected number of epochs of a full training run at this point.
        pass_seconds: Seconds of a pass over the data, validation included.
        pass_joules: Joules of a pass; None if no meter works.
    """

    auc: float | None
    memory_bytes: int | None
    watts: float | None
    epochs: float
    pass_seconds: float
    pass_joules: float | None


@dataclass(frozen=True, kw_only=True)
class FinalTraining:
    """Remaining time, energy and money for the full training of the best settings.

    Attributes:
        members: Number of models in the ensemble.
        seconds: Remaining seconds; None without a limit.
        joules: Remaining joules; None without a limit.
        money: Remaining money, in the user's currency; None without a limit.
        price_per_hour: Price of the machine, in the user's currency.
    """

    members: int
    seconds: float | None
    joules: float | None
    money: float | None
    price_per_hour: float | None

    @classmethod
    def of(cls, request: TrainRequest, used_seconds: float = 0.0, used_joules: float = 0.0) -> "FinalTraining":
        """Return the limits minus the usage before the search and minus the search's own budget."""
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
    """Return the amount by which the point exceeds each limit, in the limit's unit; at most 0 if it keeps the limit.

    Memory, power and AUC are those of the trial. Hours, energy and cost are estimated for a full training run of every
    ensemble member, from a pass over the data in the trial. Limits without a measurement are omitted.
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
    """Return True if a measured value exceeds a limit; estimates for the final training do not count.

    An AUC at most `NEAR_AUC` below its limit does not count either: an ensemble of such models may reach the limit.
    """
    allowed = {"min_auc": NEAR_AUC}
    return any(value > allowed.get(name, 0.0) for name, value in violations.items() if name not in ESTIMATED)


def format_violations(violations: Mapping[str, float]) -> str:
    """Return the broken limits as text, for example `--min-auc by 0.02, --max-memory-gib by 1.3`."""
    broken: Sequence[str] = [
        f"--{name.replace('_', '-')} by {value:.3g}" for name, value in violations.items() if value > 0
    ]
    return ", ".join(broken)
