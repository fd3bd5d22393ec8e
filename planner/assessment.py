"""Candidates of a decision and their assessment: the rows of a decision's table."""

import math
from typing import Literal

from pydantic import Field

from shunter.frozen import Frozen
from shunter.hardware.types import Placement, Prediction
from shunter.requests import Objective, Weights

Interval = tuple[float, float]
PriceSource = Literal["given", "catalogue"]


class QualityLoss(Frozen):
    """Relative increase of the NE at a placement, compared with the best NE of past runs of the job."""

    expected: float = Field(description="Expected relative increase of the NE; negative if the placement is better.")
    low: float = Field(description="Lower end of the 90 % interval of the relative NE increase.")
    high: float = Field(description="Upper end of the 90 % interval of the relative NE increase.")
    most: float = Field(
        description="Largest permitted relative NE increase: the limit of the request, or the noise between seeds."
    )
    is_asked: bool = Field(default=False, description="Whether the request sets the largest permitted NE increase.")


class Candidate(Frozen):
    """Placement with its prediction for one epoch, and its accelerator's memory and price."""

    placement: Placement
    prediction: Prediction
    accelerator_memory_bytes: int
    out_of_memory: bool = Field(default=False, description="Whether a probe ran out of memory at this placement.")
    is_here: bool = Field(
        default=True,
        description="Whether the accelerator is in this machine; otherwise it is known from the catalogue only.",
    )
    machines: int = Field(
        default=1, ge=1, description="Number of machines of the placement; price and power are per machine."
    )
    price_per_hour: float | None = Field(default=None, description="Price of one machine per hour; None if unknown.")
    price_source: PriceSource | None = Field(
        default=None, description="Source of the price: given by the user, or the catalogue."
    )
    work_share: float = Field(
        default=1.0,
        gt=0,
        description="Expected share of the planned epochs that training needs, from past runs on this data; 1 without "
        "past runs.",
    )
    work_log_deviation: float | None = Field(
        default=None,
        description="Standard deviation of the log of the expected epoch share; None for the default deviation.",
    )
    searched_share: float = Field(
        default=1.0,
        gt=0,
        description="Epoch time of the architectures in the search, relative to the default architecture.",
    )
    trials_at_once: int = Field(
        default=1,
        ge=1,
        exclude_if=lambda count: count == 1,
        description="Number of parallel trials for which this machine has cores and memory.",
    )
    expected_runs: float = Field(
        default=1.0,
        ge=1,
        description="Expected number of runs until one reaches the requested quality, from past runs.",
    )
    quality_probability: float | None = Field(
        default=None, description="Probability of reaching the requested quality, from past runs; None if unknown."
    )

    quality_loss: QualityLoss | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Expected NE increase by batch size and precision; None without past runs of the job.",
    )

    @property
    def fits(self) -> bool:
        """Return True if the placement is expected to fit into the memory of its accelerator."""
        return not self.out_of_memory and self.prediction.memory_bytes <= self.accelerator_memory_bytes


class LimitViolation(Frozen):
    """Limit that a candidate breaks."""

    limit: str = Field(description="Quantity that is limited: `time`, `energy`, `cost`, `memory`, ...")
    option: str | None = Field(description="Command-line option that sets the limit; None if the machine sets it.")
    value: float | None = Field(description="Predicted value of the limited quantity; None if unknown.")
    bound: float | None = Field(
        description="Value of the limit; None if the candidate is excluded because its objective is unknown."
    )
    unit: str
    at_least: bool = Field(default=False, description="Whether the limit is a lower bound, as for AUC.")
    confidence: float = Field(
        default=0.5, description="Probability that the predicted value is not exceeded; 0.5 for the expected value."
    )
    accelerator: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Accelerator whose memory is the limit; None if the request sets the limit.",
    )

    @property
    def excess(self) -> float:
        """Return the excess over the limit as a share of the limit; infinite if the limited figure is unknown."""
        if self.value is None or self.bound is None:
            return math.inf
        if self.at_least:
            return self.bound / self.value - 1 if self.value else math.inf
        return self.value / self.bound - 1

    @property
    def text(self) -> str:
        """Return text such as `time 1.20 h over the limit of 1 h by 20 %`."""
        if self.bound is None:
            return f"{self.limit} unknown, so the candidate cannot be compared"
        if self.value is None:
            problem = "exhausted when tried before" if self.accelerator is not None else "unknown"
            return f"{self.limit} {problem}, limit {self.bound:.4g}{self.unit}"
        if self.at_least:
            return f"{self.limit} {self.value:.2g}{self.unit} below the lower limit of {self.bound:.4g}{self.unit}"
        percent = 100 * self.excess  # Rounded up, so that a slightly exceeded limit is still shown as exceeded.
        excess = math.ceil(percent) if percent > 10 else math.ceil(10 * percent) / 10
        sure = f" at {self.confidence:.4g} confidence" if self.confidence > 0.5 else ""
        limit = f"the limit of {self.bound:.4g}{self.unit}"
        return f"{self.limit} {self.value:.4g}{self.unit}{sure} over {limit} by {excess:g} %"


class Assessment(Frozen):
    """Assessment of one candidate placement: the figures of the whole job, and the limits that exclude it.

    An interval holds with the probability `*_level`, which is derived from the prediction errors of past jobs. With too
    few past jobs the level is None, and the interval shows only the spread of the step time.
    """

    rank: int = Field(
        description="Rank from 1 (chosen placement); excluded candidates come last, by how far they exceed limits."
    )
    candidate: Candidate
    hours: float
    kwh: float | None
    cost: float | None
    memory_gib: float
    excluded_by: tuple[LimitViolation, ...]
    watts: float | None = Field(default=None, description="Mean power during training, in watts; None if unknown.")
    carbon_grams: float | None = Field(
        default=None,
        description="CO2 equivalent of the energy, in grams; None if energy or carbon intensity is unknown.",
    )
    hours_interval: Interval | None = None
    kwh_interval: Interval | None = None
    cost_interval: Interval | None = None
    carbon_interval: Interval | None = None
    memory_interval: Interval | None = Field(default=None, description="Interval of the peak memory, in GiB.")
    time_level: float | None = Field(
        default=None, description="Probability with which the intervals of time and cost hold."
    )
    energy_level: float | None = Field(
        default=None, description="Probability with which the intervals of energy and carbon hold."
    )
    memory_level: float | None = Field(default=None, description="Probability with which the memory interval holds.")
    on_front: bool = Field(
        default=False, description="Whether the candidate is on the Pareto front of time, energy and cost."
    )

    def total(self, quantity: Objective) -> float | None:
        """Return the job's hours, kilowatt hours, money or grams of CO2 equivalent, by `quantity`; None if unknown."""
        totals = {
            Objective.TIME: self.hours,
            Objective.ENERGY: self.kwh,
            Objective.COST: self.cost,
            Objective.CARBON: self.carbon_grams,
        }
        return totals[quantity]

    def interval(self, quantity: Objective) -> Interval | None:
        """Return the (low, high) interval of `total(quantity)`; None if unknown. It holds with probability `level`."""
        intervals = {
            Objective.TIME: self.hours_interval,
            Objective.ENERGY: self.kwh_interval,
            Objective.COST: self.cost_interval,
            Objective.CARBON: self.carbon_interval,
        }
        return intervals[quantity]

    def level(self, quantity: Objective) -> float | None:
        """Return the probability with which `interval(quantity)` holds; None with too few past jobs."""
        return self.time_level if quantity in (Objective.TIME, Objective.COST) else self.energy_level

    def score(self, weights: Weights) -> float:
        """Return the objective of all expected runs of the job, to be minimised; infinite if a total is unknown.

        Each total is multiplied by the expected number of runs. Several totals are multiplied, each to the power of its
        weight.
        """
        used = weights.used
        runs = self.candidate.expected_runs
        values = {quantity: None if (total := self.total(quantity)) is None else total * runs for quantity in used}
        if any(value is None for value in values.values()):
            return math.inf
        if len(used) == 1:
            return next(value for value in values.values() if value is not None)
        return math.prod((value or 0.0) ** used[quantity] for quantity, value in values.items())

    @property
    def excess(self) -> float:
        """Return the largest excess over a broken limit, as a share of the limit; 0 for a feasible candidate."""
        return max((miss.excess for miss in self.excluded_by), default=0.0)
