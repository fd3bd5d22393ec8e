"""Check of every limit for every candidate, and the smallest relaxation that makes a candidate feasible.

A limit applies to the expected figure, or to a quantile with a stated confidence. The quantile follows from past
predictions of such jobs. With too few past jobs the step time is taken as log-normal about its point estimate, with the
spread of its prediction. A figure without a spread is checked unchanged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from shunter.frozen import Frozen
from shunter.hardware.units import JOULES_PER_KWH
from shunter.planner.assessment import Assessment, LimitViolation
from shunter.planner.calibration import Ratios
from shunter.planner.rank.totals import Column, Terms, Totals, billed_seconds

Z90 = NormalDist().inv_cdf(0.95)  # half width of a 90 % interval, in standard deviations
RELAXED_DIGITS = 3  # significant digits of a proposed limit


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check of one limit for all candidates."""

    name: str
    option: str | None
    unit: str
    values: Column
    bounds: Column
    at_least: bool = False
    confidence: float = 0.5
    is_of_accelerator: bool = False
    gives_way: bool = False  # whether it is left out where no candidate keeps all limits

    @property
    def broken(self) -> NDArray[np.bool_]:
        """Return the mask of candidates that break the limit; an unknown figure breaks only upper limits."""
        if self.at_least:
            return self.values < self.bounds
        return ~(self.values <= self.bounds)

    @property
    def excess(self) -> Column:
        """Return the excess over the limit as a share of the limit, by candidate (`LimitViolation.excess`)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.bounds / self.values - 1 if self.at_least else self.values / self.bounds - 1
        return np.where(np.isnan(share), np.inf, share)


def checks_of(totals: Totals, terms: Terms) -> list[Check]:
    """Return the checks of all given limits and of accelerator memory, and that the objective is known."""
    limits = terms.limits
    z = NormalDist().inv_cdf(limits.confidence)
    # A log-normal with the upper half of the interval; unknown intervals leave the figure as it is.
    assumed = np.where(np.isnan(totals.step_high), 1.0, totals.step_high ** (z / Z90))
    factor = _factor(terms.calibration.seconds, limits.confidence, totals.is_calibrated, assumed)
    energy_factor = _factor(terms.calibration.joules, limits.confidence, totals.is_metered, factor)
    beside_seconds = terms.job.beside_seconds
    seconds = totals.hours * 3600 * factor + beside_seconds
    cost = billed_seconds(seconds, terms.billing) * totals.price / 3600
    kwh = totals.kwh * energy_factor
    if beside_seconds:
        kwh = kwh + beside_seconds * totals.watts / JOULES_PER_KWH
    sure = limits.confidence
    asked = [
        ("time", "--max-hours", " h", seconds / 3600, limits.max_hours, sure),
        ("energy", "--max-kwh", " kWh", kwh, limits.max_kwh, sure),
        ("cost", "--max-cost", "", cost, limits.max_cost, sure),
        ("price per hour", "--max-cost-per-hour", "", totals.price, limits.max_cost_per_hour, 0.5),
        ("power", "--max-watts", " W", totals.watts, limits.max_watts, 0.5),
        ("memory", "--max-memory-gib", " GiB", totals.memory_gib, limits.max_memory_gib, 0.5),
    ]
    checks = [
        Check(name=name, option=option, unit=unit, values=values, bounds=_like(values, bound), confidence=confidence)
        for name, option, unit, values, bound, confidence in asked
        if bound is not None
    ]
    memory = np.where(totals.out_of_memory, np.nan, totals.memory_gib)
    has_room = {"values": memory, "bounds": totals.accelerator_gib, "is_of_accelerator": True}
    checks.append(Check(name="memory of", option=None, unit=" GiB", **has_room))
    if not np.isnan(totals.quality_loss).all():
        losses, most = np.nan_to_num(totals.quality_loss), np.nan_to_num(totals.most_quality_loss, nan=np.inf)
        own = {"option": "--max-quality-loss", "unit": "", "gives_way": not totals.loss_is_limited}
        checks.append(Check(name="loss of NE", values=losses, bounds=most, **own))
    if limits.min_auc is not None:
        bounds = _like(totals.quality, limits.min_auc_probability)
        name = f"probability of AUC {limits.min_auc:g}"
        checks.append(Check(name=name, option=None, unit="", values=totals.quality, bounds=bounds, at_least=True))
    return checks + _unknown_objective(totals, terms, {check.name for check in checks})


def _factor(ratios: Ratios, confidence: float, applies: NDArray[np.bool_], otherwise: Column) -> Column:
    """Return the ratio of the bound that holds with the given confidence to the likeliest figure, by candidate."""
    bound = ratios.bound(confidence)
    return otherwise if bound is None else np.where(applies, bound / ratios.centre, otherwise)


def _unknown_objective(totals: Totals, terms: Terms, limited: set[str]) -> list[Check]:
    """Return checks that exclude candidates with an unknown objective; quantities in `limited` have a check already."""
    columns = {"energy": (totals.kwh, " kWh"), "cost": (totals.cost, ""), "carbon": (totals.carbon, " g")}
    return [
        Check(name=name, option=None, unit=columns[name][1], values=columns[name][0], bounds=_like(totals.hours, None))
        for name in terms.weights.used
        if name in columns and name not in limited
    ]


def _like(values: Column, bound: float | None) -> Column:
    """Return a column with `bound` for every candidate; infinity if it is None."""
    return np.full_like(values, np.inf if bound is None else bound)


class Relaxation(Frozen):
    """Relaxed bounds with which a candidate becomes feasible, other limits unchanged."""

    placement: str
    bounds: dict[str, float]
    share: float

    @property
    def text(self) -> str:
        """Return text such as `--max-hours 0.334 (for A100 x1 bf16 b4096)`."""
        return f"{' '.join(f'{option} {bound:.4g}' for option, bound in self.bounds.items())} (for {self.placement})"


def nearest_relaxations(table: Sequence[Assessment]) -> tuple[Relaxation, ...]:
    """Return the smallest sufficient relaxation of each single limit, and of several limits together.

    Args:
        table: Candidates that all break a limit, the nearest first.

    Returns:
        Relaxations, the smallest first; empty if relaxing the user's limits would not help.
    """
    possible = [row for row in table if all(_can_be_set(miss) for miss in row.excluded_by)]
    alone: dict[str, Assessment] = {}
    for row in possible:
        option = row.excluded_by[0].option
        if len(row.excluded_by) == 1 and option and (option not in alone or row.excess < alone[option].excess):
            alone[option] = row
    together = [row for row in possible if len(row.excluded_by) > 1][:1]
    chosen = [*alone.values(), *together]
    return tuple(sorted((_relaxation(row) for row in chosen), key=lambda relaxation: relaxation.share))


def _can_be_set(miss: LimitViolation) -> bool:
    return miss.option is not None and miss.value is not None and math.isfinite(miss.excess)


def _relaxation(row: Assessment) -> Relaxation:
    bounds = {miss.option: _bound(miss) for miss in row.excluded_by if miss.option is not None}
    return Relaxation(placement=row.candidate.placement.label, bounds=bounds, share=row.excess)


def _bound(miss: LimitViolation) -> float:
    """Return the value rounded to `RELAXED_DIGITS` digits, to the side that keeps the candidate feasible."""
    assert miss.value is not None
    unit = 10.0 ** (math.floor(math.log10(miss.value)) - RELAXED_DIGITS + 1)
    steps = miss.value / unit
    return (math.floor(steps) if miss.at_least else math.ceil(steps)) * unit
