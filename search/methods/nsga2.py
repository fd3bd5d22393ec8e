"""NSGA-II on a study that is rebuilt for each sampled point (Deb et al., IEEE Trans. Evol. Comput. 6(2), 2002)."""

from typing import TYPE_CHECKING

from optuna.samplers import NSGAIISampler
from optuna.trial import TrialState

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial


class Nsga2(NSGAIISampler):
    """Optuna's NSGA-II sampler, with consecutive complete trials as a generation.

    Optuna records the generation of a trial when it samples the trial. In this project another machine may have sampled
    a trial, and default points are not sampled at all. A generation is therefore defined by the order of the trials.
    """

    def get_trial_generation(self, study: "Study", trial: "FrozenTrial") -> int:
        """Return the generation of a trial that is about to be sampled."""
        return len(_complete(study)) // self._size

    def get_population(self, study: "Study", generation: int) -> "list[FrozenTrial]":
        """Return the trials of a generation."""
        return _complete(study)[generation * self._size : (generation + 1) * self._size]

    @property
    def _size(self) -> int:
        size = self.population_size
        assert size is not None, "it was given"
        return size


def _complete(study: "Study") -> "list[FrozenTrial]":
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
