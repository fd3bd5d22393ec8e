"""The choice itself: a pure function from candidates with predictions to one of them, with the reason in words.

Nothing here measures, reads a clock or asks a machine, so its tests are tables.
"""

import math
from collections.abc import Sequence

from pydantic import Field

from hardware.types import Frozen, Placement, Prediction, Workload
from shunter.errors import InfeasibleError
from tasks.request import Limits, Objective
from tasks.select.describe import JobSize

JOULES_PER_KWH = 3.6e6
NEAREST_SHOWN = 3


class Candidate(Frozen):
    """A placement, what one epoch takes there, and the memory of its accelerator."""

    placement: Placement
    prediction: Prediction
    accelerator_memory_bytes: int
    out_of_memory: bool = Field(default=False, description="Whether a probe ran out of memory there.")

    @property
    def fits(self) -> bool:
        """Whether it is expected to fit into the memory of its accelerator."""
        return not self.out_of_memory and self.prediction.memory_bytes <= self.accelerator_memory_bytes


class Miss(Frozen):
    """A limit that a candidate breaks."""

    limit: str = Field(description="What is limited: `time`, `energy`, `cost`, `memory`, ...")
    option: str | None = Field(description="Command-line option that would relax it; None where the machine sets it.")
    value: float | None = Field(description="What the candidate is expected to take; None when unknown.")
    bound: float | None = Field(description="The limit; None for the objective, which only needs to be known.")
    unit: str

    @property
    def excess(self) -> float:
        """Share of the limit by which it is missed; infinite when the figure is unknown."""
        return math.inf if self.value is None or self.bound is None else self.value / self.bound - 1

    @property
    def words(self) -> str:
        """For instance: `time 1.20 h over the limit of 1 h by 20 %`."""
        if self.bound is None:
            return f"{self.limit} unknown, so that it cannot be compared"
        if self.value is None:
            problem = "exhausted by the probe" if self.limit.startswith("memory of") else "unknown"
            return f"{self.limit} {problem}, limit {self.bound:.4g}{self.unit}"
        percent = 100 * self.excess  # Rounded up: a limit missed by little is still missed.
        excess = math.ceil(percent) if percent > 10 else math.ceil(10 * percent) / 10
        return f"{self.limit} {self.value:.4g}{self.unit} over the limit of {self.bound:.4g}{self.unit} by {excess:g} %"


class Assessment(Frozen):
    """One row of the decision's table: a candidate with the figures of the whole job and what excludes it."""

    rank: int = Field(description="From 1, the chosen one; excluded candidates come last, the nearest first.")
    candidate: Candidate
    hours: float
    kwh: float | None
    cost: float | None
    memory_gib: float
    excluded_by: tuple[Miss, ...]

    def objective_value(self, objective: Objective) -> float:
        """What is minimised; infinite when it is unknown."""
        value = {Objective.TIME: self.hours, Objective.ENERGY: self.kwh, Objective.COST: self.cost}[objective]
        return math.inf if value is None else value

    @property
    def excess(self) -> float:
        """Share by which the worst broken limit is missed; 0 for a feasible candidate."""
        return max((miss.excess for miss in self.excluded_by), default=0.0)


class Decision(Frozen):
    """Which placement was chosen, what it is expected to take, and how every other one would have fared."""

    placement: Placement
    prediction: Prediction
    objective: Objective
    limits: Limits
    job: JobSize
    workload: Workload | None = Field(default=None, description="What was decided for; None in a bare table.")
    hours: float
    kwh: float | None
    cost: float | None
    memory_gib: float
    table: tuple[Assessment, ...]
    binds: str | None = Field(description="The limit that excluded a candidate better in the objective; None if none.")
    reason: str

    def table_rows(self) -> list[dict[str, str | int | float | None]]:
        """The table as flat rows with units in their names, the chosen placement first."""
        return [_row(assessment) for assessment in self.table]


def decide(
    candidates: Sequence[Candidate],
    limits: Limits,
    objective: Objective,
    job: JobSize,
    *,
    price_per_hour: float | None = None,
    workload: Workload | None = None,
) -> Decision:
    """Choose the candidate that needs least of the objective among those that keep every limit.

    Ties go to the faster, then to fewer threads, then to less memory.

    Args:
        candidates: placements with their predictions, at least one.
        limits: hard limits of the whole job.
        objective: what to minimise.
        job: how many epochs the whole job takes.
        price_per_hour: price of the machine; needed by a limit on cost and the objective cost.
        workload: kept in the decision for the record.

    Raises:
        InfeasibleError: no candidate keeps the limits; the message names the nearest ones.
    """
    table = rank(candidates, limits, objective, job, price_per_hour=price_per_hour)
    best = table[0]
    if best.excluded_by:
        raise InfeasibleError(_infeasible_words(table))
    binds = _binding_limit(table, objective)
    return Decision(
        placement=best.candidate.placement,
        prediction=best.candidate.prediction,
        objective=objective,
        limits=limits,
        job=job,
        workload=workload,
        hours=best.hours,
        kwh=best.kwh,
        cost=best.cost,
        memory_gib=best.memory_gib,
        table=table,
        binds=binds,
        reason=_reason(table, objective, limits, job, binds),
    )


def rank(
    candidates: Sequence[Candidate],
    limits: Limits,
    objective: Objective,
    job: JobSize,
    *,
    price_per_hour: float | None = None,
) -> tuple[Assessment, ...]:
    """Rank all candidates, feasible ones by the objective and after them the excluded ones, the nearest first.

    Args:
        candidates: placements with their predictions, at least one.
        limits: hard limits of the whole job.
        objective: what to minimise.
        job: how many epochs the whole job takes.
        price_per_hour: price of the machine.
    """
    assert candidates, "nothing to choose from"
    assessed = [_assess(candidate, limits, objective, job, price_per_hour) for candidate in candidates]
    ranked = sorted(assessed, key=lambda one: _rank_key(one, objective))
    return tuple(one.model_copy(update={"rank": place}) for place, one in enumerate(ranked, start=1))


def _assess(
    candidate: Candidate, limits: Limits, objective: Objective, job: JobSize, price_per_hour: float | None
) -> Assessment:
    """Figures of the whole job at one candidate, and every limit that it breaks; its rank is still 0."""
    prediction = candidate.prediction
    hours = prediction.epoch_seconds * job.epochs / 3600
    kwh = None if prediction.epoch_joules is None else prediction.epoch_joules * job.epochs / JOULES_PER_KWH
    cost = None if price_per_hour is None else hours * price_per_hour
    memory_gib = prediction.memory_bytes / 2**30
    accelerator_use_gib = None if candidate.out_of_memory else memory_gib
    accelerator_gib = candidate.accelerator_memory_bytes / 2**30
    checks = [
        ("time", "--max-hours", hours, limits.max_hours, " h"),
        ("energy", "--max-kwh", kwh, limits.max_kwh, " kWh"),
        ("cost", "--max-cost", cost, limits.max_cost, ""),
        ("memory", "--max-memory-gib", memory_gib, limits.max_memory_gib, " GiB"),
        (f"memory of {candidate.placement.accelerator}", None, accelerator_use_gib, accelerator_gib, " GiB"),
    ]
    misses = [
        Miss(limit=name, option=option, value=value, bound=bound, unit=unit)
        for name, option, value, bound, unit in checks
        if bound is not None and (value is None or value > bound)
    ]
    if objective is Objective.ENERGY and kwh is None and limits.max_kwh is None:
        # What cannot be compared cannot be called the least.
        misses.append(Miss(limit="energy", option=None, value=None, bound=None, unit=" kWh"))
    return Assessment(
        rank=0,
        candidate=candidate,
        hours=hours,
        kwh=kwh,
        cost=cost,
        memory_gib=memory_gib,
        excluded_by=tuple(misses),
    )


def _rank_key(one: Assessment, objective: Objective) -> tuple[object, ...]:
    """Feasible ones by the objective, then the excluded ones by how far they are from being feasible."""
    placement = one.candidate.placement
    ties = (one.hours, placement.threads, one.memory_gib, placement.label)
    return bool(one.excluded_by), one.excess, one.objective_value(objective), *ties


def _binding_limit(table: Sequence[Assessment], objective: Objective) -> str | None:
    """Name of the limit without which a better candidate would have won: the one most easily relaxed."""
    chosen = table[0].objective_value(objective)
    better = [one for one in table if one.excluded_by and one.objective_value(objective) < chosen]
    if not better:
        return None
    nearest = min(better, key=lambda one: one.excess)
    return max(nearest.excluded_by, key=lambda miss: miss.excess).limit


def _reason(table: Sequence[Assessment], objective: Objective, limits: Limits, job: JobSize, binds: str | None) -> str:
    """Why the first row won, in one plain sentence."""
    best = table[0]
    feasible = sum(not one.excluded_by for one in table)
    amounts = [_amount(best, one) for one in Objective if one is objective or one is not Objective.COST]
    runner_up = ""
    if feasible > 1:
        more = table[1].objective_value(objective) / best.objective_value(objective) - 1
        runner_up = f" ({table[1].candidate.placement.label} needs {more:.1%} more)"
    within = "" if feasible == len(table) else f" that keep the limits (of {len(table)})"
    binding = "no limit binds" if binds is None else f"without the limit on {binds} another would have won"
    quality = "" if limits.min_auc is None else f", and the least AUC of {limits.min_auc:g} is checked after training"
    return (
        f"{best.candidate.placement.label} needs the least {objective.value} of {feasible} placement(s){within}"
        f"{runner_up}: {' and '.join(amounts)} for an upper estimate of {job.epochs:.3g} epochs; {binding}{quality}."
    )


def _amount(one: Assessment, quantity: Objective) -> str:
    """One total with the origin of its figure."""
    prediction = one.candidate.prediction
    if quantity is Objective.TIME:
        seconds = one.hours * 3600
        value, unit = (seconds, "s") if seconds < 120 else (seconds / 60, "min") if one.hours < 2 else (one.hours, "h")
        return f"{value:.3g} {unit} (step {prediction.step_seconds_source})"
    if quantity is Objective.COST:
        return f"a cost of {one.cost:.3g}"
    if one.kwh is None:
        return "an unknown energy"
    value, unit = (one.kwh, "kWh") if one.kwh >= 0.01 else (one.kwh * JOULES_PER_KWH, "J")
    return f"{value:.3g} {unit} (power {prediction.energy_source})"


def _infeasible_words(table: Sequence[Assessment]) -> str:
    """The nearest candidates and what each misses, and what to do, in one sentence."""
    nearest = "; ".join(
        f"{one.candidate.placement.label} ({', '.join(miss.words for miss in one.excluded_by)})"
        for one in table[:NEAREST_SHOWN]
    )
    options = dict.fromkeys(miss.option for one in table[:NEAREST_SHOWN] for miss in one.excluded_by if miss.option)
    remedy = (
        f"relax {' or '.join(options)}"
        if options
        else "use a machine with more memory or one whose energy can be counted"
    )
    return f"None of {len(table)} placements keeps the limits, the nearest are {nearest}: {remedy}, or ask for less."


def _row(one: Assessment) -> dict[str, str | int | float | None]:
    placement, prediction = one.candidate.placement, one.candidate.prediction
    return {
        "rank": one.rank,
        "placement": placement.label,
        "accelerator": placement.accelerator,
        "threads": placement.threads,
        "precision": placement.precision,
        "batch_size": placement.batch_size,
        "step_milliseconds": round(prediction.step_seconds * 1000, 4),
        "step_source": prediction.step_seconds_source,
        "samples_per_second": round(prediction.samples_per_second, 1),
        "hours": _significant(one.hours),
        "kwh": _significant(one.kwh),
        "energy_source": prediction.energy_source,
        "cost": _significant(one.cost),
        "memory_gib": _significant(one.memory_gib),
        "memory_source": prediction.memory_source,
        "excluded_by": "; ".join(miss.words for miss in one.excluded_by) or None,
    }


def _significant(value: float | None) -> float | None:
    """Four significant digits: more would claim a certainty that a prediction does not have."""
    return None if value is None else float(f"{value:.4g}")
