"""Methods that draw points by a sampler of Optuna from the study's own trials."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tasks.tune.method import BudgetLeft, Outcome, Parameters
from tasks.tune.methods import SearchContext

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler

    SamplerOf = Callable[[int, int | None], BaseSampler]  # of a seed and the budget in trials


class Sampled:
    """Draws by a sampler from all trials in the study, those of other machines and those still on their way included.

    The space's own points come first. The sampler is seeded for each trial anew, so that a study which was interrupted
    goes on as it would have.

    Args:
        context: of the search; the points are drawn from its study.
        sampler_of: makes the sampler of one draw from its seed and the budget in trials.
    """

    def __init__(self, context: SearchContext, sampler_of: "SamplerOf") -> None:
        self._context, self._sampler_of = context, sampler_of

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """The first of the space's points to try that the study does not have, or else a drawn one."""
        context = self._context
        scratch = _without_values_to_come(context.study)
        tried = [trial.params for trial in scratch.trials]
        for point in context.space.defaults():
            if point not in tried:
                return point
        scratch.sampler = self._sampler_of((context.seed * 1_000_003 + len(tried)) % 2**32, context.trials)
        return context.space.suggest(scratch.ask())

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Nothing to do: the study knows."""


def tpe_sampler(seed: int, trials: int | None) -> "BaseSampler":
    """The tree-structured Parzen estimator; a third of few trials is drawn at random first, ten of many.

    Optuna's own ten may be all there are.
    """
    from optuna.samplers import TPESampler

    startup = 10 if trials is None else min(10, max(3, trials // 3))
    return TPESampler(seed=seed, n_startup_trials=startup)


def random_sampler(seed: int, trials: int | None) -> "BaseSampler":
    """Independent uniform draws."""
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def _without_values_to_come(study: "Study") -> "Study":
    """A copy in memory, in which a draw leaves no trace: the search records a point when it begins to train it."""
    from optuna import create_study
    from optuna.pruners import NopPruner
    from optuna.trial import TrialState

    copy = create_study(directions=study.directions, pruner=NopPruner())
    copy.add_trials(trial for trial in study.get_trials(deepcopy=False) if trial.state != TrialState.WAITING)
    return copy
