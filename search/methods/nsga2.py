"""NSGA-II over a study that is put together anew for each draw (Deb et al., IEEE Trans. Evol. Comput. 6(2), 2002)."""

from typing import TYPE_CHECKING

from optuna.samplers import NSGAIISampler
from optuna.trial import TrialState

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial


class Nsga2(NSGAIISampler):
    """Optuna's sampler, whose generations are so many complete trials after one another.

    Optuna notes the generation of each trial when it draws it. Here a trial may have been drawn by another machine, or
    be the default, which nobody drew: all of them breed, by their order.
    """

    def get_trial_generation(self, study: "Study", trial: "FrozenTrial") -> int:
        """Generation of a trial that is drawn now."""
        return len(_complete(study)) // self._size

    def get_population(self, study: "Study", generation: int) -> "list[FrozenTrial]":
        """Trials of a generation."""
        return _complete(study)[generation * self._size : (generation + 1) * self._size]

    @property
    def _size(self) -> int:
        size = self.population_size
        assert size is not None, "it was given"
        return size


def _complete(study: "Study") -> "list[FrozenTrial]":
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
