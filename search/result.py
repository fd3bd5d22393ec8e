"""Result of a search."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field, computed_field, model_validator

from shunter.engine.config import Hyperparameters, SelectBy
from shunter.engine.metrics import figure_name, figure_of
from shunter.engine.stopping import StopReason
from shunter.engine.stopping_text import stop_text, with_stop_reason
from shunter.engine.trained_model import AnyModelSpec
from shunter.frozen import Frozen
from shunter.hardware.types import Placement
from shunter.pareto import non_dominated
from shunter.search.constraints import breaks_a_measured_limit
from shunter.search.protocol import Cost, Space
from shunter.search.reward import COST_WEIGHT, violation_penalty
from shunter.search.study.pair import Repeated
from shunter.search.study.storage import outcome_of, trials_with_result
from shunter.tracking.evidence import PairedTrial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial


class Setting(Frozen):
    """Tried setting (architecture and hyperparameters) with its quality and costs."""

    spec: AnyModelSpec
    hyperparameters: Hyperparameters
    validation_ne: float = Field(description="NE on the validation part, in the best epoch.")
    selected: float | None = Field(
        default=None,
        description="Value of the selection metric in the best epoch, signed so that lower is better; None if the "
        "metric is NE.",
    )
    trial_number: int
    is_pruned: bool = Field(description="Whether the trial was pruned (stopped early).")
    costs: dict[str, float] = Field(
        default={},
        description="Costs of the setting: measured step_seconds and joules_per_sample, counted parameter_bytes.",
    )
    violations: dict[str, float] = Field(
        default={},
        description="Amount by which each limit is exceeded, in the unit of the limit; 0 or less if the limit is met.",
    )
    seconds: float = Field(default=0.0, description="Duration of the trial in seconds.")
    placement: Placement | None = Field(
        default=None,
        description="Placement of a trial that repeats another trial's setting at another placement; None if the trial "
        "ran at the search's placement.",
        exclude_if=lambda value: value is None,
    )

    @property
    def loss(self) -> float:
        """Value that ranks the setting; lower is better."""
        return self.validation_ne if self.selected is None else self.selected

    @property
    def is_feasible(self) -> bool:
        """Return True if the setting keeps all limits that could be checked."""
        return all(value <= 0 for value in self.violations.values())


class TuneResult(Frozen):
    """Result of a search: the tried settings, the best first, with counts and costs."""

    settings: tuple[Setting, ...] = Field(
        description="Tried settings, at least one: first those that meet the limits, ordered by the validation metric, "
        f"or with a cost, by this metric plus {COST_WEIGHT} times the log of the cost."
    )
    complete_trials: int
    pruned_trials: int
    failed_trials: int
    resumed_trials: int = Field(description="Number of trials that an earlier, interrupted attempt had finished.")
    stop_reason: StopReason | None = Field(description="Reason why the search ended early; None if it did not.")
    method: str = Field(default="tpe", description="Search method.")
    select_by: SelectBy = Field(default="ne", description="Validation metric that ranks the settings.")
    cost: str | None = Field(
        default=None, description="Cost that the search minimises together with NE; None if it minimises NE alone."
    )
    front: tuple[int, ...] = Field(
        default=(),
        description="Trial numbers of the Pareto front of NE and cost (without a cost: step time) within the limits, "
        "from the lowest NE to the lowest cost.",
    )
    seconds: float | None = Field(
        default=None, description="Duration of the search in seconds, including earlier attempts."
    )
    joules: float | None = Field(
        default=None, description="Energy of the search in joules, including earlier attempts; None without a meter."
    )
    energy_source: str | None = Field(default=None, description="Source of the energy: measured or estimated.")
    pair: PairedTrial | None = Field(
        default=None,
        description="Trial that explored another placement, if any.",
        exclude_if=lambda value: value is None,
    )
    too_few_positives: str | None = Field(
        default=None,
        description="Reason why the validation part is too small to rank settings; None if it is not.",
        exclude_if=lambda value: value is None,
    )
    is_number: bool = Field(
        default=False,
        description="Whether the label is a number, so that each NE is a relative loss.",
        exclude_if=lambda value: not value,
    )

    run_id: str | None = Field(
        default=None,
        description="MLflow run of a search made by `shunter tune`; None within a training job.",
        exclude_if=lambda value: value is None,
    )

    _read_old = model_validator(mode="before")(with_stop_reason)

    @computed_field
    @property
    def stopped_because(self) -> str | None:
        """Reason why the search ended early, as text."""
        return self.stop_reason and stop_text(self.stop_reason)

    @property
    def best(self) -> Setting:
        """Return the best setting of the search."""
        return self.settings[0]

    @property
    def best_quality(self) -> str:
        """Return the best value of the selection metric as text, for example `NE 0.8123`."""
        return f"{self.figure} {figure_of(self.best.loss, self.select_by):.4f}"

    @property
    def figure(self) -> str:
        """Return the label of the selection metric."""
        return figure_name(self.select_by, is_number=self.is_number)

    @property
    def winners(self) -> tuple[Setting, ...]:
        """Settings for full training: those within the limits or, if none, those without a measured excess.

        The final training stops at an exceeded limit, and keeps its best epoch.
        """
        within = tuple(setting for setting in self.settings if setting.is_feasible)
        return within or tuple(setting for setting in self.settings if not breaks_a_measured_limit(setting.violations))

    @property
    def front_cost(self) -> str:
        """Name of the cost of the Pareto front."""
        return self.cost or "step_seconds"


def ranked(study: "Study", space: Space, cost: Cost | None) -> tuple[Setting, ...]:
    """Return the settings with a result: those within the limits, then those that exceed them, each from best to worst.

    Pruned trials are ranked like complete trials: a training run keeps the weights of its best epoch, so its result is
    not worse without pruning. Settings that exceed limits are sorted by their excess, the smallest first.
    """

    def key(setting: Setting) -> tuple[float, float, int]:
        paid = setting.costs.get(cost) if cost else None
        figure = setting.loss + (COST_WEIGHT * math.log(paid) if paid else 0.0)
        return violation_penalty(setting.violations), figure, setting.trial_number

    return tuple(sorted((_setting(trial, space) for trial in trials_with_result(study)), key=key))


def _setting(trial: "FrozenTrial", space: Space) -> Setting:
    spec, hyperparameters = space.build(trial.params)
    repeated = Repeated.of(trial)
    outcome = outcome_of(trial)
    assert outcome.validation_ne is not None
    return Setting(
        spec=spec,
        hyperparameters=repeated.adapted(hyperparameters) if repeated else hyperparameters,
        placement=repeated.placement if repeated else None,
        validation_ne=outcome.validation_ne,
        selected=outcome.selected,
        trial_number=trial.number,
        is_pruned=outcome.state == "pruned",
        costs={str(name): value for name, value in outcome.costs.items()},
        violations=dict(outcome.violations),
        seconds=outcome.seconds,
    )


def front_settings(settings: Sequence[Setting], cost: str) -> list[Setting]:
    """Return the Pareto front in NE and cost of the settings within the limits, from the lowest NE on."""
    known = [setting for setting in settings if setting.is_feasible and cost in setting.costs]
    return [known[index] for index in non_dominated([(setting.loss, setting.costs[cost]) for setting in known])]
