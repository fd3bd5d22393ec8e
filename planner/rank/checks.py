"""Check of every limit against every candidate, and the least change of limits that a candidate would keep.

A limit is judged by the likeliest figure, or with a stated confidence: then it must hold at that quantile of what past
predictions of such jobs led to. Too few of them tell nothing so sure: then the step time is taken as log-normal about
its point estimate, with the spread of its prediction; a figure without one is judged as it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from shunter.frozen import Frozen
from shunter.planner.assessment import Assessment, Miss
from shunter.planner.calibration import Ratios
from shunter.planner.rank.totals import Column, Terms, Totals, billed_seconds

Z90 = NormalDist().inv_cdf(0.95)  # half width of a 90 % interval, in standard deviations
RELAXED_DIGITS = 3  # of a limit that is proposed


@dataclass(frozen=True, kw_only=True)
class Check:
    """One limit against all candidates."""

    name: str
    option: str | None
    unit: str
    values: Column
    bounds: Column
    at_least: bool = False
    confidence: float = 0.5
    is_of_accelerator: bool = False

    @property
    def broken(self) -> NDArray[np.bool_]:
        """Where it is not kept, or not known to be; a least value that is unknown breaks nothing."""
        if self.at_least:
            return self.values < self.bounds
        return ~(self.values <= self.bounds)

    @property
    def excess(self) -> Column:
        """As `Miss.excess`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.bounds / self.values - 1 if self.at_least else self.values / self.bounds - 1
        return np.where(np.isnan(share), np.inf, share)


def checks_of(totals: Totals, terms: Terms) -> list[Check]:
    """Every limit that was set, the accelerator's memory, and that the objective is known."""
    limits = terms.limits
    z = NormalDist().inv_cdf(limits.confidence)
    # A log-normal with the upper half of the interval; unknown intervals leave the figure as it is.
    assumed = np.where(np.isnan(totals.step_high), 1.0, totals.step_high ** (z / Z90))
    factor = _factor(terms.calibration.seconds, limits.confidence, totals.is_calibrated, assumed)
    energy_factor = _factor(terms.calibration.joules, limits.confidence, totals.is_metered, factor)
    seconds = totals.hours * 3600 * factor
    cost = billed_seconds(seconds, terms.billing) * totals.price / 3600
    sure = limits.confidence
    asked = [
        ("time", "--max-hours", " h", totals.hours * factor, limits.max_hours, sure),
        ("energy", "--max-kwh", " kWh", totals.kwh * energy_factor, limits.max_kwh, sure),
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
    if limits.min_auc is not None:
        bounds = _like(totals.quality, limits.min_auc_probability)
        option = "--min-auc-probability"
        name = f"probability of AUC {limits.min_auc:g}"
        checks.append(Check(name=name, option=option, unit="", values=totals.quality, bounds=bounds, at_least=True))
    return checks + _unknown_objective(totals, terms, {check.name for check in checks})


def _factor(ratios: Ratios, confidence: float, applies: NDArray[np.bool_], otherwise: Column) -> Column:
    """By what the likeliest figure is multiplied so that it is not exceeded with such confidence."""
    bound = ratios.bound(confidence)
    return otherwise if bound is None else np.where(applies, bound / ratios.centre, otherwise)


def _unknown_objective(totals: Totals, terms: Terms, limited: set[str]) -> list[Check]:
    """What cannot be compared cannot be called the least; where a limit says so already, once is enough."""
    columns = {"energy": (totals.kwh, " kWh"), "cost": (totals.cost, ""), "carbon": (totals.carbon, " g")}
    return [
        Check(name=name, option=None, unit=columns[name][1], values=columns[name][0], bounds=_like(totals.hours, None))
        for name in terms.weights.used
        if name in columns and name not in limited
    ]


def _like(values: Column, bound: float | None) -> Column:
    """The same bound for all; None is infinite, kept by whatever is known."""
    return np.full_like(values, np.inf if bound is None else bound)


class Relaxation(Frozen):
    """Bounds of some limits that a candidate would keep, the other limits unchanged."""

    placement: str
    bounds: dict[str, float]
    share: float

    @property
    def text(self) -> str:
        """For instance: `--max-hours 0.334 (for A100 x1 bf16 b4096)`."""
        return f"{' '.join(f'{option} {bound:.4g}' for option, bound in self.bounds.items())} (for {self.placement})"


def nearest_relaxations(table: Sequence[Assessment]) -> tuple[Relaxation, ...]:
    """Return the least change of each limit that suffices alone, and the smallest change of several together.

    Args:
        table: Candidates that all break a limit, the nearest first.

    Returns:
        The smallest change first; empty when nothing that the user sets would help.
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


def _can_be_set(miss: Miss) -> bool:
    return miss.option is not None and miss.value is not None and math.isfinite(miss.excess)


def _relaxation(row: Assessment) -> Relaxation:
    bounds = {miss.option: _bound(miss) for miss in row.excluded_by if miss.option is not None}
    return Relaxation(placement=row.candidate.placement.label, bounds=bounds, share=row.excess)


def _bound(miss: Miss) -> float:
    """Return the value rounded to few digits, to the side on which the candidate keeps it."""
    assert miss.value is not None
    unit = 10.0 ** (math.floor(math.log10(miss.value)) - RELAXED_DIGITS + 1)
    steps = miss.value / unit
    return (math.floor(steps) if miss.at_least else math.ceil(steps)) * unit
