"""Search space of a graph model: options of its family, and training hyperparameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import TYPE_CHECKING

from shunter.engine.overrides import Overrides
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.models.graph import GraphSpec, graph_spec, learns_in_steps
from shunter.models.graph.spec import Range, Searched
from shunter.search.methods.samplers import tpe_sampler
from shunter.search.protocol import Parameters
from shunter.search.space.parameter import Parameter

if TYPE_CHECKING:
    from optuna import Trial


@dataclass(frozen=True)
class RankingSpace:
    """Search space of a graph model.

    Attributes:
        family: Name of the model.
        overrides: Fields that the user fixed, which are not searched.
    """

    family: str
    overrides: Overrides = field(default_factory=Overrides)

    @property
    def searched(self) -> Searched:
        """Values of every searched option by name; training hyperparameters only if the model learns in steps."""
        rates = RankingHyperparameters.searched if learns_in_steps(self.family) else {}
        own = {**rates, **type(graph_spec(self.family)).searched}
        return {name: values for name, values in own.items() if name not in self._fixed}

    @property
    def _fixed(self) -> Mapping[str, object]:
        return {**self.overrides.architecture, **self.overrides.learning}

    def first(self) -> list[Parameters]:
        """Return the points to try first: the defaults, which follow the literature, and other points of the family."""
        spec = graph_spec(self.family)
        rates = RankingHyperparameters(**spec.learned_with)
        default = {name: getattr(spec if hasattr(spec, name) else rates, name) for name in self.searched}
        found = [default]
        for point in type(spec).points:
            varied = {**default, **{name: value for name, value in point.items() if name in default}}
            if varied not in found:
                found.append(varied)
        return found

    def suggest(self, trial: "Trial") -> Parameters:
        """Sample a point with an Optuna trial."""
        drawn = {}
        for name, values in self.searched.items():
            is_range = isinstance(values, Range)
            parameter = Parameter.rate((values.low, values.high)) if is_range else Parameter.choice(values)
            drawn[name] = parameter.draw(trial, name)
        return drawn

    def build(self, point: Parameters) -> tuple[GraphSpec, RankingHyperparameters]:
        """Return the architecture and the training hyperparameters of a point of the search space."""
        rates = {one.name for one in fields(RankingHyperparameters)}
        own = {name: value for name, value in point.items() if name not in rates}
        learning = {name: value for name, value in point.items() if name in rates}
        spec = graph_spec(self.family, **{**own, **self.overrides.architecture})
        return spec, RankingHyperparameters(**{**spec.learned_with, **learning, **self.overrides.learning})


FEWEST_RIVALS = 2  # number of other training runs that a median needs
FEWEST_EPOCHS = 2  # number of epochs before a training run may be stopped


class RankingSearch:
    """Search method that proposes the space's first points, then points of a tree-structured Parzen estimator.

    Args:
        space: Search space.
        trials: Largest number of trials; None if another limit ends the search.
        seed: Seed of the sampler.
    """

    def __init__(self, space: RankingSpace, trials: int | None, *, seed: int = 0) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = space
        self._study = optuna.create_study(direction="maximize", sampler=tpe_sampler(seed, trials))
        self._told: list[Sequence[float]] = []
        first = space.first()
        self._first = len(first)
        for point in first:
            self._study.enqueue_trial(point)

    def ask(self) -> Parameters | None:
        """Return the next point to train; None if all points were proposed."""
        if self._told and not self.space.searched:
            return None
        self._trial = self._study.ask()
        return self.space.suggest(self._trial)

    def tell(self, qualities: Sequence[float]) -> None:
        """Learn from the outcome of the last point that `ask` returned.

        Args:
            qualities: Selection metric on the validation part after each epoch, at least one value; higher is better.
        """
        self._told.append(qualities)
        self._study.tell(self._trial, max(qualities))

    def is_beaten(self, qualities: Sequence[float]) -> bool:
        """Return True if a run is worse than the median of the other runs at the same epoch (Optuna's median rule).

        The first points are never stopped. They are few and different, and the best of them may improve later than the
        other points.
        """
        epoch = len(qualities)
        if epoch < FEWEST_EPOCHS or len(self._told) < self._first:
            return False
        others = [max(told[:epoch]) for told in self._told if len(told) >= epoch]
        return len(others) >= FEWEST_RIVALS and max(qualities) < median(others)
