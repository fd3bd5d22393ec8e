"""Protocol of all search methods: `ask` proposes a point, `tell` reports its outcome.

A method only proposes. The search (`shunter.search.search`) trains the points, counts time and energy, and records all
trials in one Optuna study. A new method is a class and an entry of `shunter.requests.search_methods`, which other
distributions extend by the entry points `shunter.search_methods`.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from shunter.engine.config import Hyperparameters
from shunter.models.spec import ModelSpec

if TYPE_CHECKING:
    from optuna import Trial

Parameters = dict[str, Any]
Factors = Mapping[str, tuple[Any, ...]]
Cost = Literal["step_seconds", "joules_per_sample", "parameter_bytes"]
COSTS: tuple[Cost, ...] = ("step_seconds", "joules_per_sample", "parameter_bytes")


class Space(Protocol):
    """Search space; a point is a value for each parameter."""

    def suggest(self, trial: "Trial") -> Parameters:
        """Draw a point with an Optuna trial."""
        ...

    def defaults(self) -> list[Parameters]:
        """Return the points to try first."""
        ...

    def build(self, parameters: Parameters) -> tuple[ModelSpec, Hyperparameters]:
        """Return the architecture and the learning rates of a point."""
        ...

    def identity(self, parameters: Parameters) -> Hashable:
        """Return what a point trains; two points with equal identities train the same model."""
        ...

    def factors(self) -> Factors:
        """Return every parameter with its values; of a range a few values along it.

        Parameters that only some points have, such as options of one family, are included. `build` ignores them for the
        other points.
        """
        ...

    def model_dump_json(self) -> str:
        """Return the space as JSON, which distinguishes studies of different spaces."""
        ...


@dataclass(frozen=True, kw_only=True)
class BudgetLeft:
    """Rest of the budget of a search; None is no limit.

    Attributes:
        trials: Trials that may still begin.
        seconds: Wall-clock seconds.
        joules: Joules of the accelerators.
        at_a_time: Number of trials that run at the same time.
    """

    trials: int | None = None
    seconds: float | None = None
    joules: float | None = None
    at_a_time: int = 1

    @property
    def trial_seconds(self) -> float | None:
        """Remaining seconds, summed over the trials that run at the same time."""
        return None if self.seconds is None else self.seconds * self.at_a_time


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of a trained point.

    Attributes:
        state: End of the training; a pruned training was stopped early, and a failed one has no result.
        validation_ne: NE of the best epoch on the validation part; None if failed.
        selected: If the user selects by another figure than NE: that figure of the best epoch, as a number to be
            lowered (`shunter.engine.metrics.Metrics.loss_by`). None if the user selects by NE.
        costs: Measured seconds of a step and joules of a sample, counted bytes of the parameters. Costs that could
            not be measured are missing.
        violations: For each of the user's limits, the amount by which the point breaks it; at most 0 if kept.
        seconds: Seconds of the training.
        joules: Joules of the training; None if no meter works.
        epochs: Passes over the training part; None if unknown.
    """

    state: Literal["complete", "pruned", "failed"]
    validation_ne: float | None = None
    selected: float | None = None
    costs: Mapping[Cost, float] = field(default_factory=dict)
    violations: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    joules: float | None = None
    epochs: float | None = None

    @property
    def loss(self) -> float | None:
        """Value that the search minimises: NE, or the figure that the user selects by; None if failed."""
        return self.validation_ne if self.selected is None else self.selected

    @property
    def is_feasible(self) -> bool:
        """Return True if the point has a result and keeps all limits."""
        return self.validation_ne is not None and all(value <= 0 for value in self.violations.values())


class SearchMethod(Protocol):
    """Search method."""

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return the next point to train; None if the method has no other point to propose.

        Several trials run at the same time, so `ask` may be called again before `tell` has reported all earlier points.
        Work of the method itself, such as training a super-net, counts against the budget too.
        """
        ...

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Learn from the outcome of a point; a resumed search also reports the points of earlier attempts."""
        ...
