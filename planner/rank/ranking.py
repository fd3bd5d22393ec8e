"""Ranking of candidates by the figures of the whole job, and the rows of the table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shunter.pareto import on_front
from shunter.planner.assessment import Assessment, Candidate, Interval, LimitViolation
from shunter.planner.rank.checks import Check, checks_of
from shunter.planner.rank.totals import Column, Terms, Totals, scores_of, totals_of

MOST_ROWS = 1_000
ENDING_LIMITS = frozenset({"time", "energy", "cost"})  # limits that end a search or training, which keeps its best
EQUAL = 0.02  # share by which objectives may differ and count as equal
NOISE = 0.05  # share of steps' noise within which the placement with room for parallel trials is preferred


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """All candidates in order, the best first.

    Attributes:
        table: Rows of the candidates, in order. Of more than `MOST_ROWS` candidates: the first ones, the best of each
            accelerator, the fastest, and for each limit the nearest candidate that breaks only this limit.
        considered: Number of candidates.
        feasible: Number of candidates that keep all limits.
        barred: Excluded candidate with a better objective that is nearest to feasible; None if there is none.
        shortened_by: Limits at which the search and training of the first candidate are expected to end early.
    """

    table: tuple[Assessment, ...]
    considered: int
    feasible: int
    barred: Assessment | None
    shortened_by: tuple[LimitViolation, ...] = ()


def rank(candidates: Sequence[Candidate], terms: Terms) -> Ranking:
    """Rank all candidates: feasible ones by the objective, then excluded ones, the nearest first.

    Of the candidates within `EQUAL` of the best objective, that with the lowest expected NE comes first. If no NE is
    known, the candidate within `NOISE` that permits the most parallel trials of the search comes first. Ties go to the
    faster candidate, then to fewer machines, fewer threads, less memory.

    Args:
        candidates: Placements with their predictions, at least one.
        terms: Limits, objective and size of the job.
    """
    assert candidates, "nothing to choose from"
    totals = totals_of(candidates, terms)
    checks = checks_of(totals, terms)
    if np.any([check.broken for check in checks], axis=0).all():
        checks = [check for check in checks if not check.gives_way]
    broken = np.stack([check.broken for check in checks])
    excess = np.max([np.where(check.broken, check.excess, 0.0) for check in checks], axis=0)
    scores = scores_of(totals, terms.weights)
    is_excluded: NDArray[np.bool_] = np.any(broken, axis=0)
    ties = (totals.label_order, totals.memory_gib, totals.threads, totals.machines, totals.hours)
    loss = _loss_of_equals(totals, scores, is_excluded)
    room = -np.where(_within(NOISE, scores, is_excluded), [one.trials_at_once for one in candidates], 0)
    of_equals = (loss, room) if np.isnan(totals.quality_loss).all() else (room, loss)
    order = np.lexsort((*ties, scores, *of_equals, excess, is_excluded))
    is_on_front = np.zeros(len(candidates), dtype=bool)
    feasible = np.flatnonzero(~is_excluded)
    is_on_front[feasible] = on_front(np.stack([totals.hours, totals.kwh, totals.cost], axis=1)[feasible])
    rows = _Rows(candidates, totals, checks, broken, is_on_front)
    # Excluded candidates are ordered by excess, so the first with a better objective is the nearest.
    barred = np.flatnonzero(is_excluded[order] & (scores[order] < scores[order[0]]))
    return Ranking(
        table=tuple(rows.row(place, int(order[place])) for place in _shown(candidates, order, totals.hours, broken)),
        considered=len(candidates),
        feasible=len(feasible),
        barred=rows.row(int(barred[0]), int(order[barred[0]])) if barred.size else None,
    )


def shortened(ranking: Ranking, terms: Terms) -> Ranking | None:
    """Return the ranking of a job that will end early at a limit; candidates that can train one epoch come first.

    Args:
        ranking: Ranking in which no candidate keeps the limits.
        terms: Limits, objective and size of the job.

    Returns:
        The ranking; None if no candidate keeps the limits for an epoch of one model.
    """
    epoch = terms.job.passes_per_epoch * terms.calibration.seconds.centre

    def is_enough(row: Assessment, miss: LimitViolation) -> bool:
        if miss.limit not in ENDING_LIMITS or miss.value is None or miss.bound is None or not row.hours:
            return False
        candidate = row.candidate
        share = epoch * candidate.prediction.epoch_seconds * candidate.searched_share / 3600 / row.hours
        return miss.value * min(1.0, share) <= miss.bound

    fitting = [row for row in ranking.table if all(is_enough(row, miss) for miss in row.excluded_by)]
    if not fitting:
        return None
    others = [row for row in ranking.table if row not in fitting]
    rows = [*(row.model_copy(update={"excluded_by": ()}) for row in fitting), *others]
    table = tuple(row.model_copy(update={"rank": place}) for place, row in enumerate(rows, start=1))
    return Ranking(
        table=table,
        considered=ranking.considered,
        feasible=len(fitting),
        barred=None,
        shortened_by=fitting[0].excluded_by,
    )


def _loss_of_equals(totals: Totals, scores: Column, is_excluded: NDArray[np.bool_]) -> Column:
    """Return the NE loss of candidates within `EQUAL` of the best objective, and infinity for all others."""
    return np.where(_within(EQUAL, scores, is_excluded), np.nan_to_num(totals.quality_loss), np.inf)


def _within(share: float, scores: Column, is_excluded: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return True for the feasible candidates whose objective is within a share of the best."""
    best = np.min(scores, where=~is_excluded, initial=np.inf)
    return ~is_excluded & (scores <= (1 + share) * best)


def _shown(
    candidates: Sequence[Candidate], order: NDArray[np.intp], hours: Column, broken: NDArray[np.bool_]
) -> list[int]:
    """Return the positions that get a row in the table; see `Ranking`."""
    if len(order) <= MOST_ROWS:
        return list(range(len(order)))
    names = np.array([candidates[index].placement.accelerator for index in order.tolist()])
    _, best_of_each = np.unique(names, return_index=True)
    broken = broken[:, order]
    alone = broken.sum(axis=0) == 1
    nearest = [places[0] for row in broken if (places := np.flatnonzero(row & alone)).size]
    fastest = int(np.argmin(hours[order]))
    return sorted({*range(MOST_ROWS), *best_of_each.tolist(), *map(int, nearest), fastest})


class _Rows:
    """Builder of the table's rows."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        totals: Totals,
        checks: Sequence[Check],
        broken: NDArray[np.bool_],
        is_on_front: NDArray[np.bool_],
    ) -> None:
        self._candidates, self._totals, self._is_on_front = candidates, totals, is_on_front
        self._checks = [(check, row, check.values, check.bounds) for check, row in zip(checks, broken, strict=True)]

    def row(self, place: int, index: int) -> Assessment:
        """Return the row of the candidate at `index`, which has the position `place` in the order."""
        candidate, totals = self._candidates[index], self._totals
        hours, kwh, cost = float(totals.hours[index]), _known(totals.kwh[index]), _known(totals.cost[index])
        calibration = totals.calibration
        factors = _pair(totals.time_low[index], totals.time_high[index])
        energy_factors = _pair(totals.energy_low[index], totals.energy_high[index])
        memory_factors = _pair(totals.memory_low[index], totals.memory_high[index])
        memory_gib = float(totals.memory_gib[index])
        has_cost_interval = factors is not None and cost is not None
        return Assessment(
            rank=place + 1,
            candidate=candidate,
            hours=hours,
            kwh=kwh,
            cost=cost,
            carbon_grams=_known(totals.carbon[index]),
            watts=_known(totals.watts[index]),
            memory_gib=memory_gib,
            excluded_by=self._misses(index),
            hours_interval=_times(hours, factors),
            kwh_interval=_times(kwh, energy_factors),
            carbon_interval=_times(_known(totals.carbon[index]), energy_factors),
            memory_interval=_times(memory_gib, memory_factors),
            time_level=calibration.seconds.level if totals.is_calibrated[index] else None,
            energy_level=calibration.joules.level if totals.is_metered[index] else None,
            memory_level=calibration.memory.level if memory_factors and calibration.promises else None,
            cost_interval=(float(totals.cost_low[index]), float(totals.cost_high[index]))
            if has_cost_interval
            else None,
            on_front=bool(self._is_on_front[index]),
        )

    def _misses(self, index: int) -> tuple[LimitViolation, ...]:
        accelerator = self._candidates[index].placement.accelerator
        return tuple(
            LimitViolation(
                limit=f"{check.name} {accelerator}" if check.is_of_accelerator else check.name,
                accelerator=accelerator if check.is_of_accelerator else None,
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


def _pair(low: float, high: float) -> Interval | None:
    return None if np.isnan(low) or np.isnan(high) else (float(low), float(high))


def _times(value: float | None, factors: Interval | None) -> Interval | None:
    return None if value is None or factors is None else (value * factors[0], value * factors[1])


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
