"""Calibration of simulated steps by executed plans: one factor for each term of a step, learned for each machine.

A step is simulated as tasks whose seconds are sums of terms. Terms of computation are dense layers, copies of tables,
operators for each group of tables and each copied table, and a constant for each step. Terms of communication are ids,
starts of exchanges, all-reduces, and rows and vectors. The latter are separate for whole (or column-wise) and for
row-wise tables, which are exchanged by different collectives. Each term was measured alone on an idle machine. In
processes that share cores, and in TorchRec's exchanges, a term takes longer:

    measured step of plan i ~ sum over terms t of factor_t * x_i,t

where x_i,t are the term's seconds along the critical path. The path depends on the factors, so path and factors are
fitted alternately, by non-negative least squares of the relative errors. A ridge penalty shrinks all factors towards
the prior factors times one common slowdown, because few plans hardly distinguish the terms. Its strength is the largest
whose cross-validated error is within one standard error of the best. A remaining deviation that plans of one model have
in common becomes a factor of that model.
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
from shunter.extensions.distributed.planning.simulate import Task, TaskGraph, critical_path, simulate
from shunter.files import replace_file
from shunter.frozen import Frozen

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
FOLDS = 6  # folds of the cross-validation over plans
DOUBTED_PLANS = 0.5  # prior strength, in plans, of a model factor of 1; set by hand
# Factor on a step in CPU processes, beyond `OF_PROCESSORS`, on a machine without executed plans. Measured: 1.6 to 2.1,
# on four table sets (47 plans, 2 and 4 processes on two otherwise idle cores).
UNTAUGHT_FACTOR = 1.9
# Factor of each term in CPU processes, relative to the term measured alone. First fitted to the CPU time of steps of 39
# plans of three table sets, then by ridge regression to the steps of the 47 plans of the first four sets of
# `benchmarks/plans_executed.py`. Plans of a left-out set are then predicted within 3.8 %, apart from a factor of the
# set, with a rank correlation of 0.92.
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
FEWEST_PLANS = 3  # with fewer plans, one factor for all terms is fitted
ROUNDS = 6
MOST_KEPT = 32


@dataclass(frozen=True)
class Calibration:
    """Learned factors of the terms of a step.

    Attributes:
        factors: Factor of each term; 1 if nothing was learned.
        plans: Number of executed plans used.
        error: Mean relative error of the step time in cross-validation over plans; None for fewer than two plans.
    """

    factors: Mapping[Term, float]
    plans: int = 0
    error: float | None = None

    def seconds(self, amounts: Amounts) -> float:
        """Return the seconds of a task, given the seconds of each of its terms before calibration."""
        return sum(self.factors[term] * amount for term, amount in amounts.items())

    @property
    def sentence(self) -> str:
        """Return a sentence about the calibration; empty if nothing was learned."""
        if not self.plans:
            return UNTAUGHT_TOLD if self is UNTAUGHT else ""
        wrong = "" if self.error is None else f" (mean error in cross-validation {self.error:.0%})"
        return f"Times are calibrated by {self.plans} executed plans{wrong}."


UNCALIBRATED = Calibration(dict.fromkeys(TERMS, 1.0))
UNTAUGHT = Calibration({term: UNTAUGHT_FACTOR * OF_PROCESSORS[term] for term in TERMS})
UNTAUGHT_TOLD = (
    "No plan was executed on a machine of this kind yet: simulated steps are multiplied by "
    f"{UNTAUGHT_FACTOR}, the factor of "
    "another machine. Train with a plan to calibrate them."
)


class SimulatedStep(Frozen):
    """Step of a plan as uncalibrated tasks, which can be simulated again with other factors.

    Attributes:
        machine: Key of machine and number of processes; plans with equal keys calibrate each other. None: no plan.
        predicted_seconds: Step time as predicted before the plan was executed.
        resources: Number of devices and links.
        resource: Number of the device or link of each task; -1 for none.
        waits_for: Numbers of the dependencies of each task.
        amounts: Seconds of each term of each task.
        model: Key of family, tables and batch size; empty if unknown.
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
            raise ValueError("the lists resource, waits_for and amounts differ in length: give one entry for each task")
        if any(not -1 <= one < self.resources for one in self.resource):
            raise ValueError("a task has an unknown resource: use -1, or a number below `resources`")
        if any(not 0 <= one < number for number, waits in enumerate(self.waits_for) for one in waits):
            raise ValueError("a task waits for a later task: list dependencies first")
        return self

    def seconds(self, calibration: Calibration) -> float:
        """Return the simulated step time with the factors of a calibration."""
        return _Step(self, 1.0).seconds(np.array([calibration.factors[term] for term in TERMS]))


class ExecutedPlan(Frozen):
    """Plan that a training run has executed, and its measured step; a plan counts once by its unique key."""

    key: str
    measured_seconds: Positive
    step: SimulatedStep


class _Step:
    """Step that is simulated repeatedly with different factors, and its measured seconds."""

    def __init__(self, step: SimulatedStep, measured: float) -> None:
        self.measured, self.model = measured, step.model
        tasks = [Task("", "", at, waits) for at, waits in zip(step.resource, step.waits_for, strict=True)]
        self._graph = TaskGraph(tasks, [str(number) for number in range(step.resources)])
        self._amounts = np.array([[one.get(term, 0.0) for term in TERMS] for one in step.amounts])

    def seconds(self, factors: np.ndarray) -> float:
        """Return the simulated step time."""
        return simulate(self._graph, (self._amounts @ factors).tolist()).end[-1]

    def along_path(self, factors: np.ndarray) -> np.ndarray:
        """Return the uncalibrated seconds of each term along the critical path, `[terms]`."""
        seconds = (self._amounts @ factors).tolist()
        path = critical_path(self._graph, seconds, simulate(self._graph, seconds))
        return self._amounts[path].sum(axis=0)


def calibrate(
    plans: Sequence[ExecutedPlan], prior: Mapping[Term, float] = UNCALIBRATED.factors, model: str = ""
) -> Calibration:
    """Learn the factors of one machine from the plans that were executed on it.

    Args:
        plans: Plans of one machine and one number of processes.
        prior: Prior factors; only their ratios count.
        model: Key of the model to predict, see `SimulatedStep.model`.
    """
    if not plans:
        return UNCALIBRATED
    steps = [_Step(plan.step, plan.measured_seconds) for plan in plans]
    ridges = RIDGES if len(plans) >= FEWEST_PLANS else (np.inf,)
    known = np.array([prior[term] for term in TERMS])
    errors = {ridge: _validation_errors(steps, ridge, known) for ridge in ridges}
    chosen = _strongest(errors)
    factors, of_model = _fit(steps, chosen, known)
    return Calibration(
        factors=dict(zip(TERMS, (of_model.get(model, 1.0) * factors).tolist(), strict=True)),
        plans=len(plans),
        error=statistics.fmean(errors[chosen]) if len(plans) > 1 else None,
    )


def _strongest(errors: Mapping[float, Sequence[float]]) -> float:
    """Return the strongest ridge penalty whose mean error is within one standard error of the best.

    This is the one-standard-error rule (Hastie, Tibshirani, Friedman, "The Elements of Statistical Learning", section
    7.10), applied to the differences for each plan.
    """
    best = min(errors.values(), key=statistics.fmean)
    chosen = 0.0
    for ridge, one in errors.items():
        worse = [error - other for error, other in zip(one, best, strict=True)]
        if statistics.fmean(worse) <= (statistics.stdev(worse) / len(worse) ** 0.5 if len(worse) > 1 else 0.0):
            chosen = max(chosen, ridge)
    return chosen


def _validation_errors(steps: Sequence[_Step], ridge: float, known: np.ndarray) -> list[float]:
    """Return the relative error of the step time of each plan in cross-validation."""
    if len(steps) < 2:
        return [0.0]
    wrong = []
    for part in range(min(FOLDS, len(steps))):
        factors, of_model = _fit([step for number, step in enumerate(steps) if number % FOLDS != part], ridge, known)
        for step in steps[part::FOLDS]:
            predicted = of_model.get(step.model, 1.0) * step.seconds(factors)
            wrong.append(abs(predicted / step.measured - 1))
    return wrong


def _fit(steps: Sequence[_Step], ridge: float, known: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
    """Fit the factors of all terms, with a ridge towards the prior factors `known` times one common slowdown.

    An infinite ridge returns the prior factors times the slowdown. The second result has a factor for each model.
    """
    from scipy.optimize import nnls

    common = statistics.median(step.measured / step.seconds(known) for step in steps)
    factors = drawn_to = common * known
    # The penalty of a factor is weighted by its term's share of the step time.
    for _ in range(0 if np.isinf(ridge) else ROUNDS):
        design = np.array([step.along_path(factors) / step.measured for step in steps])
        held = np.sqrt(ridge * len(steps)) * np.diag(np.maximum(design.mean(axis=0), 1e-3))
        solved, _ = nnls(np.vstack([design, held]), np.concatenate([np.ones(len(steps)), held @ drawn_to]))
        factors = (factors + solved) / 2
    # The factor of a model is the ratio of measured to predicted step time, shrunk towards 1 for few plans.
    longer: dict[str, list[float]] = {}
    for step in steps:
        if step.model:
            longer.setdefault(step.model, []).append(np.log(step.measured / step.seconds(factors)))
    of_model = {
        model: float(np.exp(statistics.median(ones) * len(ones) / (len(ones) + DOUBTED_PLANS)))
        for model, ones in longer.items()
    }
    return factors, of_model


def typical_step_seconds(history: Sequence[Any]) -> float | None:
    """Return the median over epochs of the mean step time, including waits for batches; None without steps.

    The first epoch is left out if there are others.

    Args:
        history: `shunter.engine.results.EpochReport` of each epoch, with totals since the start of the training.
    """
    means, before = [], (0, 0.0)
    for one in history:
        taken = one.wait_seconds + one.compute_seconds
        if one.step > before[0]:
            means.append((taken - before[1]) / (one.step - before[0]))
        before = one.step, taken
    return statistics.median(means[1:] or means) if means else None


def read_executed(path: Path) -> list[ExecutedPlan]:
    """Return the stored plans, the newest last; damaged lines are skipped with a warning."""
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
        else:
            found[plan.key] = plan
    if damaged:
        log.warning("%d of %d lines of %s are damaged: their plans are skipped.", damaged, len(lines), path)
    return list(found.values())[-MOST_KEPT:]


def add_executed(path: Path, plan: ExecutedPlan) -> None:
    """Add a plan to the stored plans; beyond `MOST_KEPT` plans of its machine, the oldest are removed."""
    others = [one for one in read_executed(path) if one.key != plan.key]
    of_machine = [one for one in others if one.step.machine == plan.step.machine]
    dropped = {one.key for one in of_machine[: max(0, len(of_machine) + 1 - MOST_KEPT)]}
    kept = [*(one for one in others if one.key not in dropped), plan]
    replace_file(path, "".join(f"{seal(one.model_dump_json())}\n" for one in kept))
