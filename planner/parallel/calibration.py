"""What executed plans teach of a machine: a factor for each term of a step, so that the next prediction is better.

A step is simulated as tasks whose seconds are sums of terms: layers; rows and vectors on their way, of tables that lie
whole (or by column) and of those in blocks of rows, which are exchanged by other collectives; copies of tables;
operators for each group of tables and for each copied table; starts of exchanges; ids; sums over all devices; and what
every step takes besides. Each was measured of itself, on a machine that did nothing else; in processes that share
cores, or in TorchRec's exchanges, it takes more. So

    measured step of plan i ~ sum over terms t of factor_t * x_i,t

where x_i,t are the term's seconds along the critical path, which depends on the factors in turn: they are fitted by
non-negative least squares of the relative errors, path and factors by turns. A ridge draws all factors to those known
beforehand times the one by which everything is slower, as few plans tell little apart; its strength is the largest one
whose predictions of each plan from the others are as good as the best ones, within what chance does to these. What
plans of one model have in common beyond the terms is a factor of that model.
"""

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field, ValidationError, model_validator

from shunter.checked_json import seal, unseal
from shunter.files import replace_file
from shunter.frozen import Frozen
from shunter.planner.parallel.simulate import Task, TaskGraph, critical_path, simulate

log = logging.getLogger(__name__)
Term = Literal[
    "layers",
    "whole_rows",
    "whole_vectors",
    "block_rows",
    "block_vectors",
    "copies",
    "groups",
    "tables",
    "starts",
    "ids",
    "sums",
    "step",
]
TERMS: tuple[Term, ...] = get_args(Term)
Amounts = dict[Term, float]
"""Seconds of each term of a task, before the calibration."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
RIDGES = (0.01, 0.1, 1.0, 10.0)
FOLDS = 6  # parts of the plans, each predicted from the others
DOUBTED_PLANS = 0.5  # that each model is taken to have executed with no factor of its own; set by hand
UNTAUGHT_FACTOR = 1.9  # of a step in processes of processors that taught nothing yet, over what `OF_PROCESSORS` says:
# of four table sets (47 plans, 2 and 4 processes of a machine of two cores without other work) 1.6 to 2.1
# What each term takes in processes of a processor, over what it was measured to take of itself. First fitted to
# processor time in a step of 39 plans of three table sets, then drawn by a ridge to the steps of the 47 plans of the
# first four sets of `benchmarks/plans_executed.py`. By hand: the plans of a set left out follow from the others within
# 3.8 %, but for a factor of the set, and in the order in which they were measured with a rank correlation of .92.
OF_PROCESSORS: dict[Term, float] = {
    "layers": 0.85,
    "whole_rows": 0.73,
    "whole_vectors": 0.52,
    "block_rows": 1.17,
    "block_vectors": 0.4,
    "copies": 0.43,
    "groups": 2.4,
    "tables": 4.5,
    "starts": 1.5,
    "ids": 0.1,
    "sums": 1.0,
    "step": 3.5,
}
FEWEST_PLANS = 3  # before which one factor for all is fitted
ROUNDS = 6
MOST_KEPT = 32


@dataclass(frozen=True)
class Calibration:
    """Factors of the terms.

    Attributes:
        factors: Of each term; 1 where nothing was learned.
        plans: Executed plans that it was learned from.
        error: Mean relative error of the step of each plan, predicted from the others; None of fewer than two.
    """

    factors: Mapping[Term, float]
    plans: int = 0
    error: float | None = None

    def seconds(self, amounts: Amounts) -> float:
        """What a task takes."""
        return sum(self.factors[term] * amount for term, amount in amounts.items())

    @property
    def told(self) -> str:
        """In a sentence; empty where nothing was learned."""
        if not self.plans:
            return UNTAUGHT_TOLD if self is UNTAUGHT else ""
        wrong = "" if self.error is None else f", of which each was predicted from the others within {self.error:.0%}"
        return f"They are set right by {self.plans} executed plans{wrong}."


UNCALIBRATED = Calibration(dict.fromkeys(TERMS, 1.0))
UNTAUGHT = Calibration({term: UNTAUGHT_FACTOR * OF_PROCESSORS[term] for term in TERMS})
UNTAUGHT_TOLD = (
    f"No plan has been executed by such processes yet, so steps are taken {UNTAUGHT_FACTOR} times as long as the work "
    "in them: so much longer they took in those of another machine."
)


class SimulatedStep(Frozen):
    """A step of a plan, as its tasks were before any calibration: what can be simulated again under other factors.

    Attributes:
        machine: On which machine, in how many processes; only their likes teach of each other. None teaches nothing.
        predicted_seconds: Step as it was predicted, with the calibration of then.
        resources: Number of devices and links.
        resource: Of each task.
        waits_for: Of each task.
        amounts: Terms of each task.
        model: Family, tables and batch that it is a step of; empty where that was not kept.
    """

    machine: str | None
    predicted_seconds: Positive
    resources: int = Field(ge=1)
    resource: tuple[int, ...]
    waits_for: tuple[tuple[int, ...], ...]
    amounts: tuple[dict[Term, Annotated[float, Field(ge=0, allow_inf_nan=False)]], ...] = Field(min_length=1)
    model: str = ""

    @model_validator(mode="after")
    def _check(self) -> "SimulatedStep":
        if not len(self.resource) == len(self.waits_for) == len(self.amounts):
            raise ValueError("its tasks are not all described")
        if any(not -1 <= one < self.resources for one in self.resource):
            raise ValueError("a task is on a resource that is not there")
        if any(not 0 <= one < number for number, waits in enumerate(self.waits_for) for one in waits):
            raise ValueError("a task waits for one that comes later")
        return self

    @classmethod
    def of(
        cls,
        graph: TaskGraph,
        amounts: Sequence[Amounts],
        predicted_seconds: float,
        machine: str | None,
        model: str = "",
    ) -> "SimulatedStep":
        """Of a simulation."""
        return cls(
            machine=machine,
            model=model,
            predicted_seconds=predicted_seconds,
            resources=len(graph.resources),
            resource=tuple(graph.resource),
            waits_for=tuple(graph.waits_for),
            amounts=tuple(dict(one) for one in amounts),
        )

    def seconds(self, calibration: Calibration) -> float:
        """The step under a calibration."""
        return _Step(self, 1.0).seconds(np.array([calibration.factors[term] for term in TERMS]))


class ExecutedPlan(Frozen):
    """A plan that was trained by.

    Attributes:
        key: What it is known by, so that it counts once.
        measured_seconds: Mean step.
        step: The step as it was simulated.
    """

    key: str
    measured_seconds: Positive
    step: SimulatedStep


class _Step:
    """A step, ready to be simulated under any factors.

    Args:
        step: Its tasks.
        measured: What it took.
    """

    def __init__(self, step: SimulatedStep, measured: float) -> None:
        self.measured, self.model = measured, step.model
        tasks = [Task("", "", at, waits) for at, waits in zip(step.resource, step.waits_for, strict=True)]
        self._graph = TaskGraph(tasks, [str(number) for number in range(step.resources)])
        self._amounts = np.array([[one.get(term, 0.0) for term in TERMS] for one in step.amounts])

    def seconds(self, factors: np.ndarray) -> float:
        """The simulated step."""
        return simulate(self._graph, (self._amounts @ factors).tolist()).end[-1]

    def along_path(self, factors: np.ndarray) -> np.ndarray:
        """Seconds of each term along the critical path, before the factors: `[terms]`."""
        seconds = (self._amounts @ factors).tolist()
        path = critical_path(self._graph, seconds, simulate(self._graph, seconds))
        return self._amounts[path].sum(axis=0)


@dataclass(frozen=True)
class _Fit:
    """Factors of all terms, and what plans of one model have in common beyond them."""

    factors: np.ndarray
    of_model: Mapping[str, float]

    def seconds(self, step: _Step) -> float:
        """The step as it is predicted."""
        return self.of_model.get(step.model, 1.0) * step.seconds(self.factors)


def calibrate(
    plans: Sequence[ExecutedPlan], beforehand: Mapping[Term, float] = UNCALIBRATED.factors, model: str = ""
) -> Calibration:
    """Learn the factors of one machine from the plans that were executed on it.

    Args:
        plans: Of one machine and number of processes.
        beforehand: What the factors are taken to be in proportion to as far as the plans do not tell.
        model: What model the factors are for, `SimulatedStep.model`.
    """
    if not plans:
        return UNCALIBRATED
    steps = [_Step(plan.step, plan.measured_seconds) for plan in plans]
    ridges = RIDGES if len(plans) >= FEWEST_PLANS else (np.inf,)
    known = np.array([beforehand[term] for term in TERMS])
    errors = {ridge: _errors_from_others(steps, ridge, known) for ridge in ridges}
    chosen = _strongest(errors)
    fit = _fit(steps, chosen, known)
    factors = fit.of_model.get(model, 1.0) * fit.factors
    return Calibration(
        factors=dict(zip(TERMS, factors.tolist(), strict=True)),
        plans=len(plans),
        error=statistics.fmean(errors[chosen]) if len(plans) > 1 else None,
    )


def _strongest(errors: Mapping[float, Sequence[float]]) -> float:
    """The strongest ridge that errs no more than the best one by more than chance does: a standard error.

    Hastie, Tibshirani, Friedman, "The Elements of Statistical Learning", section 7.10, of the differences plan by plan.
    """
    best = min(errors.values(), key=statistics.fmean)
    return max(ridge for ridge, one in errors.items() if _is_as_good(one, best))


def _is_as_good(errors: Sequence[float], best: Sequence[float]) -> bool:
    worse = [one - other for one, other in zip(errors, best, strict=True)]
    return statistics.fmean(worse) <= (statistics.stdev(worse) / len(worse) ** 0.5 if len(worse) > 1 else 0.0)


def _errors_from_others(steps: Sequence[_Step], ridge: float, known: np.ndarray) -> list[float]:
    """Relative error of each plan's step as the others predict it, a part of the plans at a time."""
    if len(steps) < 2:
        return [0.0]
    wrong = []
    for part in range(min(FOLDS, len(steps))):
        fit = _fit([step for number, step in enumerate(steps) if number % FOLDS != part], ridge, known)
        wrong += [abs(fit.seconds(step) / step.measured - 1) for step in steps[part::FOLDS]]
    return wrong


def _fit(steps: Sequence[_Step], ridge: float, known: np.ndarray) -> _Fit:
    """Factors of all terms, drawn to the known ones times one for all by a ridge; an infinite one leaves just those."""
    from scipy.optimize import nnls

    common = statistics.median(step.measured / step.seconds(known) for step in steps)
    factors = drawn_to = common * known
    # A factor's weight is the share of the steps that its term takes: what takes little is held to the common one.
    for _ in range(0 if np.isinf(ridge) else ROUNDS):
        design = np.array([step.along_path(factors) / step.measured for step in steps])
        held = np.sqrt(ridge * len(steps)) * np.diag(np.maximum(design.mean(axis=0), 1e-3))
        solved, _ = nnls(np.vstack([design, held]), np.concatenate([np.ones(len(steps)), held @ drawn_to]))
        factors = (factors + solved) / 2
    return _Fit(factors, _of_model(steps, factors))


def _of_model(steps: Sequence[_Step], factors: np.ndarray) -> dict[str, float]:
    """Of each model, by how much its steps are longer than the factors say: the less sure, the nearer to one."""
    longer: dict[str, list[float]] = {}
    for step in steps:
        if step.model:
            longer.setdefault(step.model, []).append(np.log(step.measured / step.seconds(factors)))
    return {
        model: float(np.exp(statistics.median(ones) * len(ones) / (len(ones) + DOUBTED_PLANS)))
        for model, ones in longer.items()
    }


def typical_step_seconds(history: Sequence[Any]) -> float | None:
    """Median over the epochs of their mean step, waiting for batches included; the first counts only if it is alone.

    Args:
        history: `shunter.engine.results.EpochReport` of each epoch, which count from the beginning.
    """
    means, before = [], (0, 0.0)
    for one in history:
        taken = one.wait_seconds + one.compute_seconds
        if one.step > before[0]:
            means.append((taken - before[1]) / (one.step - before[0]))
        before = one.step, taken
    return statistics.median(means[1:] or means) if means else None


def read_executed(path: Path, machine: str | None = None) -> list[ExecutedPlan]:
    """Return the kept plans, of one machine if it is named; damaged lines are left out with a warning."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    found: dict[str, ExecutedPlan] = {}
    damaged = 0
    for line in lines:
        try:
            plan = ExecutedPlan.model_validate_json(unseal(line))
        except (ValueError, ValidationError, RecursionError):
            damaged += 1
            continue
        if machine is None or plan.step.machine == machine:
            found[plan.key] = plan
    if damaged:
        log.warning("%d of %d lines of %s are damaged: these plans teach nothing any more.", damaged, len(lines), path)
    return list(found.values())[-MOST_KEPT:]


def keep_executed(path: Path, plan: ExecutedPlan) -> None:
    """Add a plan to the kept ones; the oldest of its machine go beyond `MOST_KEPT`."""
    others = [one for one in read_executed(path) if one.key != plan.key]
    of_machine = [one for one in others if one.step.machine == plan.step.machine]
    dropped = {one.key for one in of_machine[: max(0, len(of_machine) + 1 - MOST_KEPT)]}
    kept = [*(one for one in others if one.key not in dropped), plan]
    replace_file(path, "".join(f"{seal(one.model_dump_json())}\n" for one in kept))
