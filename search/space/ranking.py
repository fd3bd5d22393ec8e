"""Search space of a graph model: options of its family, and training hyperparameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from shunter.engine.overrides import Overrides
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.models.graph import GraphSpec, graph_spec, learns_in_steps
from shunter.models.graph.spec import Range, Searched
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
        """Every searched option with its values; a model without training steps has no training hyperparameters."""
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
        """Draw a point with an Optuna trial."""
        return {name: _parameter(values).draw(trial, name) for name, values in self.searched.items()}

    def build(self, point: Parameters) -> tuple[GraphSpec, RankingHyperparameters]:
        """Return the architecture and the training hyperparameters of a point of the search space."""
        rates = {one.name for one in fields(RankingHyperparameters)}
        own = {name: value for name, value in point.items() if name not in rates}
        learning = {name: value for name, value in point.items() if name in rates}
        spec = graph_spec(self.family, **{**own, **self.overrides.architecture})
        return spec, RankingHyperparameters(**{**spec.learned_with, **learning, **self.overrides.learning})


def _parameter(values: Range | tuple[float, ...]) -> Parameter:
    return Parameter.rate((values.low, values.high)) if isinstance(values, Range) else Parameter.choice(values)
