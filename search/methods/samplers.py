"""Search methods that sample points with an Optuna sampler, based on the trials of the study."""

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Cost, Outcome, Parameters
from shunter.search.study.families import FamilyComparison
from shunter.search.study.storage import begun_trials, outcome_of

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

    SamplerOf = Callable[[int, int | None], BaseSampler]  # arguments: seed, and budget in trials

MOST_DRAWS = 20  # attempts to sample a family that was not eliminated, or a point that was not tried before
SMALLEST_GENERATION = 4  # smallest generation of NSGA-II; chosen by hand, like GENERATION and TPE's startup trials
GENERATION = 20  # generation of NSGA-II if time or energy ends the search, so that the number of trials is unknown


class Sampled:
    """Search method that samples points based on all trials in the study, from any machine.

    The space's default points, or other given points, are tried first. The sampler gets a new seed for each trial, so
    that an interrupted study continues as it would have without the interruption.

    Args:
        context: Context of the search, with the study.
        sampler_of: Function that builds the sampler of one point from a seed and the budget in trials.
        first: Points to try first; None uses the default points of the space.
        comparison: Comparison of several families, which replaces the points to try first.

    Attributes:
        comparison: Comparison of several families; None if there is none.
    """

    def __init__(
        self,
        context: SearchContext,
        sampler_of: "SamplerOf",
        first: Sequence[Parameters] | None = None,
        comparison: FamilyComparison | None = None,
    ) -> None:
        self.comparison = comparison
        self._context, self._sampler_of = context, sampler_of
        self._first = context.space.defaults() if first is None else first

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return the next of the points to try first that is not in the study yet; afterwards return a sampled point.

        The result is None if all parameters are fixed and the only point is in the study already.
        """
        context = self._context
        begun = begun_trials(context.study)
        if self.comparison is not None:
            if (point := self.comparison.next(begun, left)) is not None:
                return point
            return self._drawn_of(self.comparison.finalists(begun), begun)
        tried = [trial.params for trial in begun]
        for point in self._first:
            if point not in tried:
                return point
        if tried and not context.space.factors():
            return None  # all parameters are fixed, so there is only one point
        return self._new(begun)

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Do nothing, because the study contains the outcome already."""

    def _new(self, begun: "Sequence[FrozenTrial]") -> Parameters:
        """Sample a point whose model differs from all earlier ones, since training the same model again is useless.

        If the sampler finds no new point, points are sampled uniformly. If no uniform sample is new either, the last
        sample is returned.
        """
        space, scratch = self._context.space, self._scratch(begun)
        known = {space.identity(trial.params) for trial in begun}
        point: Parameters = {}
        for sampler in (scratch.sampler, random_sampler(self._seed(begun), None)):
            scratch.sampler = sampler
            for _ in range(MOST_DRAWS):
                point = space.suggest(scratch.ask())
                if space.identity(point) not in known:
                    return point
        return point

    def _drawn_of(self, families: Sequence[str], begun: "Sequence[FrozenTrial]") -> Parameters:
        """Return the first sampled point whose family is among `families`.

        After `MOST_DRAWS` samples of other families, a point of `families[0]` is sampled.
        """
        scratch = self._scratch(begun)
        for _ in range(MOST_DRAWS):
            point = self._context.space.suggest(scratch.ask())
            if point["family"] in families:
                return point
        scratch.enqueue_trial({"family": families[0]})
        return self._context.space.suggest(scratch.ask())

    def _scratch(self, begun: "Sequence[FrozenTrial]") -> "Study":
        """Return a copy of the study with the given trials and a new sampler; sampling changes only the copy."""
        context = self._context
        scratch = _in_memory(context.study, begun, context.cost)
        scratch.sampler = self._sampler_of(self._seed(begun), context.trials)
        return scratch

    def _seed(self, begun: "Sequence[FrozenTrial]") -> int:
        """Return the sampler's seed for the next point, from the seed of the search and the number of trials."""
        return (self._context.seed * 1_000_003 + len(begun)) % 2**32


def tpe_sampler(seed: int, trials: int | None) -> "BaseSampler":
    """Return the tree-structured Parzen estimator; the first 3 to 10 points, a third of `trials`, are uniform samples.

    Optuna's default of ten random trials could use up a small budget.
    """
    from optuna.samplers import TPESampler

    startup = 10 if trials is None else min(10, max(3, trials // 3))
    return TPESampler(seed=seed, n_startup_trials=startup)


def random_sampler(seed: int, trials: int | None) -> "BaseSampler":
    """Return the sampler of independent uniform samples."""
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def nsga2_sampler(seed: int, trials: int | None) -> "BaseSampler":
    """Return NSGA-II, with a generation size of about the square root of the number of trials.

    Optuna's default generation of 50 trials would contain all trials of most searches. The first generation is sampled
    uniformly, except trials that are in the study already.
    """
    from optuna.samplers import NSGAIISampler
    from optuna.trial import TrialState

    size = GENERATION if trials is None else max(SMALLEST_GENERATION, round(math.sqrt(trials)))

    class Nsga2(NSGAIISampler):
        """NSGA-II (Deb et al., IEEE Trans. Evol. Comput. 6(2), 2002) with consecutive complete trials as a generation.

        Optuna records the generation of a trial when it samples the trial. In this project another machine may have
        sampled a trial, and default points are not sampled at all.
        """

        def get_trial_generation(self, study: "Study", trial: "FrozenTrial") -> int:
            return len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) // size

        def get_population(self, study: "Study", generation: int) -> "list[FrozenTrial]":
            complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            return complete[generation * size : (generation + 1) * size]

    return Nsga2(population_size=size, seed=seed)


def _in_memory(study: "Study", trials: "Sequence[FrozenTrial]", cost: Cost | None) -> "Study":
    """Copy trials into a study in memory, so that sampling a point does not change the recorded study.

    With two objectives Optuna ignores pruned trials, so pruned trials are copied as complete trials.
    """
    from optuna import create_study
    from optuna.pruners import NopPruner
    from optuna.trial import TrialState

    copies = []
    for trial in trials:
        scratch = copy(trial)
        outcome = outcome_of(trial)
        if cost and trial.state == TrialState.PRUNED and cost in outcome.costs and outcome.loss is not None:
            scratch.state, scratch.values = TrialState.COMPLETE, [outcome.loss, outcome.costs[cost]]
        copies.append(scratch)
    study = create_study(directions=study.directions, pruner=NopPruner())
    study.add_trials(copies)
    return study
