"""Protocol of all search methods: `ask` proposes a point, `tell` reports its outcome.

A method only proposes points. The search (`shunter.search.search`) trains the points, measures time and energy, and
records all trials in one Optuna study. A new method is a class with an entry in `shunter.requests.search`.
Other Python packages add methods by the entry point group `shunter.search_methods`.
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
        """Sample a point with an Optuna trial."""
        ...

    def defaults(self) -> list[Parameters]:
        """Return the points of the space to try first."""
        ...

    def build(self, parameters: Parameters) -> tuple[ModelSpec, Hyperparameters]:
        """Return the architecture and the learning rates of a point."""
        ...

    def identity(self, parameters: Parameters) -> Hashable:
        """Return a key of the model that a point trains; two points with equal keys train the same model."""

    def factors(self) -> Factors:
        """Return every parameter with its values; a range is represented by a few values.

        Parameters that apply to some points only, such as options of one family, are included. `build` ignores such
        parameters for all other points.
        """
        ...

    def model_dump_json(self) -> str:
        """Return the space as JSON; studies of different spaces have different JSON."""
        ...


@dataclass(frozen=True, kw_only=True)
class BudgetLeft:
    """Remaining budget of a search; None in a field: no limit.

    Attributes:
        trials: Number of trials that may still begin.
        seconds: Remaining wall-clock seconds.
        joules: Remaining joules of the accelerators.
        at_a_time: Number of trials that run at the same time.
    """

    trials: int | None = None
    seconds: float | None = None
    joules: float | None = None
    at_a_time: int = 1

    @property
    def trial_seconds(self) -> float | None:
        """Remaining seconds, times the number of trials that run at the same time; None: no limit."""
        return None if self.seconds is None else self.seconds * self.at_a_time


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of a trained point.

    Attributes:
        state: End of the training; a pruned training was stopped early, and a failed one has no result.
        validation_ne: NE of the best epoch on the validation part; None if failed.
        selected: Value of the selection metric at the best epoch, lower is better
            (`shunter.engine.metrics.Metrics.loss_by`). None if the user selects by NE.
        costs: Measured seconds per step and joules per sample, and bytes of the parameters. Costs that could not be
            measured are missing.
        violations: Amount by which the point exceeds each limit of the user, by name; at most 0 if it keeps the limit.
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
        """Value that the search minimises: NE or another selection metric as a loss; None if failed."""
        return self.validation_ne if self.selected is None else self.selected

    @property
    def is_feasible(self) -> bool:
        """Return True if the point has a result and keeps all limits."""
        return self.validation_ne is not None and all(value <= 0 for value in self.violations.values())


class SearchMethod(Protocol):
    """Search method: proposes points, and learns from their outcomes."""

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return the next point to train; None if the method has no other point to propose.

        Several trials run at the same time, so `ask` may be called again before `tell` has reported all earlier points.
        Work of the method itself, such as training a super-net, counts against the budget too.
        """

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Learn from the outcome of a point; a resumed search also reports the points of earlier attempts."""
