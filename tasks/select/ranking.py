"""Ranks candidates by the figures of the whole job: numpy over all of them at a time, for there may be many.

A limit is judged by the likeliest figure, or with a stated confidence: the step time is taken as log-normal about its
point estimate, with the 90 % interval of its prediction, and the limit must hold at that quantile. Energy and cost
follow the step time; a figure without an interval is judged as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tasks.request import Billing, Limits, Weights
from tasks.select.assessment import Assessment, Candidate, Interval, Miss
from tasks.select.describe import JobSize
from tasks.select.pareto import front

JOULES_PER_KWH = 3.6e6
Z90 = NormalDist().inv_cdf(0.95)  # half width of a 90 % interval, in standard deviations
BILLED_UNIT_SECONDS = {Billing.SECOND: 1, Billing.MINUTE: 60, Billing.HOUR: 3600}
SHORTEST_BILLED_SECONDS = 60
MEMORY_OF = "memory of"
MOST_ROWS = 1_000

Column = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On what candidates are compared.

    Attributes:
        limits: hard limits of the whole job.
        weights: what to minimise.
        job: how many epochs the whole job takes.
        billing: how time is charged.
    """

    limits: Limits
    weights: Weights
    job: JobSize
    billing: Billing = Billing.EXACT


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """All candidates in order, the best first.

    Attributes:
        table: one row a candidate, in order. Of more than `MOST_ROWS` the first ones, the best of each accelerator, the
            fastest, and for each limit the one that needs its smallest change alone.
        considered: how many candidates there were.
        feasible: how many of them keep all limits.
        barred: of those that a limit excludes although they need less of the objective, the one nearest to feasible.
    """

    table: tuple[Assessment, ...]
    considered: int
    feasible: int
    barred: Assessment | None


def rank(candidates: Sequence[Candidate], terms: Terms) -> Ranking:
    """Rank all candidates: feasible ones by the objective, and after them the excluded ones, the nearest first.

    Ties go to the faster, then to fewer machines, fewer threads, less memory.

    Args:
        candidates: placements with their predictions, at least one.
        terms: limits, objective and size of the job.
    """
    assert candidates, "nothing to choose from"
    totals = _totals(candidates, terms)
    checks = _checks(totals, terms)
    broken = np.stack([check.broken for check in checks])
    excess = np.max([np.where(check.broken, check.excess, 0.0) for check in checks], axis=0)
    scores = _scores(totals, terms.weights)
    is_excluded: NDArray[np.bool_] = np.any(broken, axis=0)
    ties = (totals.label_order, totals.memory_gib, totals.threads, totals.machines, totals.hours)
    order = np.lexsort((*ties, scores, excess, is_excluded))
    on_front = np.zeros(len(candidates), dtype=bool)
    feasible = np.flatnonzero(~is_excluded)
    on_front[feasible] = front(np.stack([totals.hours, totals.kwh, totals.cost], axis=1)[feasible])
    rows = _Rows(candidates, totals, checks, broken, on_front)
    # Excluded ones are in the order of their excess, so the first that would do better is the nearest.
    barred = np.flatnonzero(is_excluded[order] & (scores[order] < scores[order[0]]))
    return Ranking(
        table=tuple(rows.row(place, int(order[place])) for place in _shown(candidates, order, totals.hours, broken)),
        considered=len(candidates),
        feasible=len(feasible),
        barred=rows.row(int(barred[0]), int(order[barred[0]])) if barred.size else None,
    )


def _shown(
    candidates: Sequence[Candidate], order: NDArray[np.intp], hours: Column, broken: NDArray[np.bool_]
) -> list[int]:
    """Places that get a row in the table; see `Ranking`."""
    if len(order) <= MOST_ROWS:
        return list(range(len(order)))
    names = np.array([candidates[index].placement.accelerator for index in order.tolist()])
    _, best_of_each = np.unique(names, return_index=True)
    broken = broken[:, order]
    alone = broken.sum(axis=0) == 1
    nearest = [places[0] for row in broken if (places := np.flatnonzero(row & alone)).size]
    fastest = int(np.argmin(hours[order]))
    return sorted({*range(MOST_ROWS), *best_of_each.tolist(), *map(int, nearest), fastest})


def billed_seconds(seconds: Column, billing: Billing) -> Column:
    """Seconds that are charged for: each started unit, and 60 s at least; the time itself when billing is exact."""
    unit = BILLED_UNIT_SECONDS.get(billing)
    if unit is None:
        return seconds
    return np.maximum(SHORTEST_BILLED_SECONDS, np.ceil(seconds / unit - 1e-9) * unit)


@dataclass(frozen=True, kw_only=True)
class _Totals:
    """Figures of the whole job, one column each; NaN where unknown."""

    hours: Column
    kwh: Column
    cost: Column
    watts: Column
    price: Column
    memory_gib: Column
    accelerator_gib: Column
    quality: Column
    low: Column
    high: Column
    cost_low: Column
    cost_high: Column
    machines: Column
    threads: Column
    label_order: NDArray[np.intp]
    out_of_memory: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class _Check:
    """One limit against all candidates."""

    name: str
    option: str | None
    unit: str
    values: Column
    bounds: Column
    at_least: bool = False
    confidence: float = 0.5

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


def _totals(candidates: Sequence[Candidate], terms: Terms) -> _Totals:
    raw = np.array([_raw(one) for one in candidates], dtype=np.float64).T
    step, epoch_seconds, epoch_joules, memory, accelerator, price, machines, quality, threads, low, high, oom = raw
    seconds = epoch_seconds * terms.job.epochs
    price = price * machines

    def cost(seconds: Column) -> Column:
        return billed_seconds(seconds, terms.billing) * price / 3600

    with np.errstate(divide="ignore", invalid="ignore"):
        low, high, watts = low / step, high / step, epoch_joules / epoch_seconds
    labels = np.array([one.placement.label for one in candidates])
    return _Totals(
        hours=seconds / 3600,
        kwh=epoch_joules * terms.job.epochs / JOULES_PER_KWH,
        cost=cost(seconds),
        watts=watts,
        price=price,
        memory_gib=memory / 2**30,
        accelerator_gib=accelerator / 2**30,
        quality=quality,
        low=np.fmin(low, 1.0),
        high=np.fmax(high, 1.0),
        cost_low=cost(seconds * np.fmin(low, 1.0)),
        cost_high=cost(seconds * np.fmax(high, 1.0)),
        machines=machines,
        threads=threads,
        label_order=np.unique(labels, return_inverse=True)[1],
        out_of_memory=oom.astype(bool),
    )


def _raw(one: Candidate) -> tuple[float | None, ...]:
    """The numbers of one candidate; numpy makes NaN of None."""
    prediction = one.prediction
    low, high = prediction.step_seconds_interval or (None, None)
    return (
        prediction.step_seconds,
        prediction.epoch_seconds,
        prediction.epoch_joules,
        prediction.memory_bytes,
        one.accelerator_memory_bytes,
        one.price_per_hour,
        one.machines,
        one.quality_probability,
        one.placement.threads,
        low,
        high,
        one.out_of_memory,
    )


def _checks(totals: _Totals, terms: Terms) -> list[_Check]:
    """Every limit that was set, the accelerator's memory, and that the objective is known."""
    limits = terms.limits
    z = NormalDist().inv_cdf(limits.confidence)
    # A log-normal with the upper half of the interval; unknown intervals leave the figure as it is.
    factor = np.where(np.isnan(totals.high), 1.0, totals.high ** (z / Z90))
    seconds = totals.hours * 3600 * factor
    cost = billed_seconds(seconds, terms.billing) * totals.price / 3600
    sure = limits.confidence
    asked = [
        ("time", "--max-hours", " h", totals.hours * factor, limits.max_hours, sure),
        ("energy", "--max-kwh", " kWh", totals.kwh * factor, limits.max_kwh, sure),
        ("cost", "--max-cost", "", cost, limits.max_cost, sure),
        ("price per hour", "--max-cost-per-hour", "", totals.price, limits.max_cost_per_hour, 0.5),
        ("power", "--max-watts", " W", totals.watts, limits.max_watts, 0.5),
        ("memory", "--max-memory-gib", " GiB", totals.memory_gib, limits.max_memory_gib, 0.5),
    ]
    checks = [
        _Check(name=name, option=option, unit=unit, values=values, bounds=_like(values, bound), confidence=confidence)
        for name, option, unit, values, bound, confidence in asked
        if bound is not None
    ]
    memory = np.where(totals.out_of_memory, np.nan, totals.memory_gib)
    checks.append(_Check(name=MEMORY_OF, option=None, unit=" GiB", values=memory, bounds=totals.accelerator_gib))
    if limits.min_auc is not None:
        bounds = _like(totals.quality, limits.min_auc_probability)
        option = "--min-auc-probability"
        name = f"probability of AUC {limits.min_auc:g}"
        checks.append(_Check(name=name, option=option, unit="", values=totals.quality, bounds=bounds, at_least=True))
    return checks + _unknown_objective(totals, terms, {check.name for check in checks})


def _unknown_objective(totals: _Totals, terms: Terms, limited: set[str]) -> list[_Check]:
    """What cannot be compared cannot be called the least; where a limit says so already, once is enough."""
    columns = {"energy": (totals.kwh, " kWh"), "cost": (totals.cost, "")}
    return [
        _Check(name=name, option=None, unit=columns[name][1], values=columns[name][0], bounds=_like(totals.hours, None))
        for name in terms.weights.used
        if name in columns and name not in limited
    ]


def _like(values: Column, bound: float | None) -> Column:
    """The same bound for all; None is infinite, kept by whatever is known."""
    return np.full_like(values, np.inf if bound is None else bound)


def _scores(totals: _Totals, weights: Weights) -> Column:
    """As `Assessment.score`."""
    columns = {"time": totals.hours, "energy": totals.kwh, "cost": totals.cost}
    used = weights.used
    if len(used) == 1:
        scores = columns[next(iter(used))]
    else:
        scores = np.prod([columns[name] ** weight for name, weight in used.items()], axis=0)
    return np.where(np.isnan(scores), np.inf, scores)


class _Rows:
    """Makes the rows of the table, of those candidates that are asked for."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        totals: _Totals,
        checks: Sequence[_Check],
        broken: NDArray[np.bool_],
        on_front: NDArray[np.bool_],
    ) -> None:
        self._candidates, self._totals, self._on_front = candidates, totals, on_front
        self._checks = [(check, row, check.values, check.bounds) for check, row in zip(checks, broken, strict=True)]

    def row(self, place: int, index: int) -> Assessment:
        """The candidate at `index`, which is at `place` in the order."""
        candidate, totals = self._candidates[index], self._totals
        hours, kwh, cost = float(totals.hours[index]), _known(totals.kwh[index]), _known(totals.cost[index])
        factors = None
        if candidate.prediction.step_seconds_interval is not None:
            factors = float(totals.low[index]), float(totals.high[index])
        has_cost_interval = factors is not None and cost is not None
        return Assessment(
            rank=place + 1,
            candidate=candidate,
            hours=hours,
            kwh=kwh,
            cost=cost,
            watts=_known(totals.watts[index]),
            memory_gib=float(totals.memory_gib[index]),
            excluded_by=self._misses(index),
            hours_interval=_times(hours, factors),
            kwh_interval=_times(kwh, factors),
            cost_interval=(float(totals.cost_low[index]), float(totals.cost_high[index]))
            if has_cost_interval
            else None,
            on_front=bool(self._on_front[index]),
        )

    def _misses(self, index: int) -> tuple[Miss, ...]:
        accelerator = self._candidates[index].placement.accelerator
        return tuple(
            Miss(
                limit=f"{check.name} {accelerator}" if check.name == MEMORY_OF else check.name,
                option=check.option,
                value=_known(values[index]),
                bound=None if np.isinf(bounds[index]) else float(bounds[index]),
                unit=check.unit,
                at_least=check.at_least,
                confidence=check.confidence,
            )
            for check, broken, values, bounds in self._checks
            if broken[index]
        )


def _times(value: float | None, factors: Interval | None) -> Interval | None:
    return None if value is None or factors is None else (value * factors[0], value * factors[1])


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
