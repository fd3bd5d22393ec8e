"""What every way of searching has in common: it is asked for a point, told what came of it, and knows its budget.

The search (`shunter.search.search`) trains the points, counts what they used and keeps them in one Optuna study,
whichever method proposed them; a method only proposes. A new one is a class and an entry of
`shunter.requests.search_methods`, which other distributions extend by the entry points `shunter.search_methods`.
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
    """What is searched: points, written as a value for each parameter."""

    def suggest(self, trial: "Trial") -> Parameters:
        """Draw a point by an Optuna trial."""
        ...

    def defaults(self) -> list[Parameters]:
        """The points to try first."""
        ...

    def build(self, parameters: Parameters) -> tuple[ModelSpec, Hyperparameters]:
        """The architecture and the learning rates at a point."""
        ...

    def identity(self, parameters: Parameters) -> Hashable:
        """What is trained at a point: two points may come to the same."""
        ...

    def factors(self) -> Factors:
        """Every parameter with its values; of a range a few values along it.

        A parameter that only some points have, as the options of a family, is there too: `build` overlooks it in the
        others.
        """
        ...

    def model_dump_json(self) -> str:
        """The space as JSON, by which a study of another space is told apart."""
        ...


@dataclass(frozen=True, kw_only=True)
class BudgetLeft:
    """What a search may still use; None where nothing is set.

    Attributes:
        trials: That may begin.
        seconds: By the clock on the wall.
        joules: Of the accelerators.
        at_a_time: Trials that run at a time.
    """

    trials: int | None = None
    seconds: float | None = None
    joules: float | None = None
    at_a_time: int = 1

    @property
    def trial_seconds(self) -> float | None:
        """Of all trials together, which run at the same time."""
        return None if self.seconds is None else self.seconds * self.at_a_time


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a point.

    Attributes:
        state: How its training ended; a pruned one was stopped early, and a failed one came to nothing.
        validation_ne: NE on the validation part of the best epoch; None of a failed one.
        selected: Where the user selects by another figure, that of the best epoch, as a number to be lowered
            (`shunter.engine.metrics.Metrics.loss_by`); None where it is the NE.
        costs: Measured seconds of a step and joules of a sample, counted bytes of the parameters. What
            could not be measured is missing.
        violations: For each of the user's limits, by how much the point breaks it; kept where it is 0 or below.
        seconds: Seconds of its training.
        joules: Joules of its training; None where no meter works.
    """

    state: Literal["complete", "pruned", "failed"]
    validation_ne: float | None = None
    selected: float | None = None
    costs: Mapping[Cost, float] = field(default_factory=dict)
    violations: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    joules: float | None = None

    @property
    def loss(self) -> float | None:
        """What the search lowers: NE, or the figure that the user selects by; None of a failed one."""
        return self.validation_ne if self.selected is None else self.selected

    @property
    def is_feasible(self) -> bool:
        """Whether it came to a result that keeps all limits."""
        return self.validation_ne is not None and all(value <= 0 for value in self.violations.values())


class SearchMethod(Protocol):
    """A way of searching."""

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """The next point to train; None when the method has no other to propose.

        It may be asked again before it was told of the points that are on their way: several train at a time. What it
        does itself to find a point, such as training a super-net, counts against the budget too.
        """
        ...

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Learn what came of a point; of a search that goes on after an interruption also of the earlier points."""
        ...
