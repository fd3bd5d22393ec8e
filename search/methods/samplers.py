"""Methods that draw points by a sampler of Optuna from the study's own trials."""

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Cost, Outcome, Parameters
from shunter.search.study.families import FamilyRace
from shunter.search.study.storage import begun_trials, outcome_of

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

    SamplerOf = Callable[[int, int | None], BaseSampler]  # of a seed and the budget in trials

MOST_DRAWS = 20  # until one is of a family that is still in the race, or was not tried before
SMALLEST_GENERATION = 4  # of NSGA-II; set by hand, as the two below
GENERATION = 20  # where time or energy ends the search, and nobody knows how many trials that are


class Sampled:
    """Draws by a sampler from all trials in the study, those of other machines and those still on their way included.

    The space's own points come first, or others that are given. The sampler is seeded for each trial anew, so that a
    study which was interrupted goes on as it would have.

    Args:
        context: Context of the search; the points are drawn from its study.
        sampler_of: Makes the sampler of one draw from its seed and the budget in trials.
        first: Points to try first; None are the space's own.
        race: The race of several families, which takes the place of those points.

    Attributes:
        race: As given.
    """

    def __init__(
        self,
        context: SearchContext,
        sampler_of: "SamplerOf",
        first: Sequence[Parameters] | None = None,
        race: FamilyRace | None = None,
    ) -> None:
        self.race = race
        self._context, self._sampler_of = context, sampler_of
        self._first = context.space.defaults() if first is None else first

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """The first of the points to try first that the study does not have, or else a drawn one."""
        context = self._context
        begun = begun_trials(context.study)
        if self.race is not None:
            if (point := self.race.next(begun, left)) is not None:
                return point
            return self._drawn_of(self.race.finalists(begun), begun)
        tried = [trial.params for trial in begun]
        for point in self._first:
            if point not in tried:
                return point
        if tried and not context.space.factors():
            return None  # all is fixed: there is one point
        return self._new(begun)

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Nothing to do: the study knows."""

    def _new(self, begun: "Sequence[FrozenTrial]") -> Parameters:
        """A draw that comes to something else than all before: the same again, with the same seed, teaches nothing.

        Where the sampler gives none it is drawn at random, and where that gives none either, all may have been tried.
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
        """A draw of one of some families: the first that the sampler gives, or else of the first family."""
        scratch = self._scratch(begun)
        for _ in range(MOST_DRAWS):
            point = self._context.space.suggest(scratch.ask())
            if point["family"] in families:
                return point
        scratch.enqueue_trial({"family": families[0]})
        return self._context.space.suggest(scratch.ask())

    def _scratch(self, begun: "Sequence[FrozenTrial]") -> "Study":
        """A study to draw from, which knows what has begun."""
        context = self._context
        scratch = _in_memory(context.study, begun, context.cost)
        scratch.sampler = self._sampler_of(self._seed(begun), context.trials)
        return scratch

    def _seed(self, begun: "Sequence[FrozenTrial]") -> int:
        """Of one draw."""
        return (self._context.seed * 1_000_003 + len(begun)) % 2**32


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


def nsga2_sampler(seed: int, trials: int | None) -> "BaseSampler":
    """NSGA-II with about as many generations as each has trials; Optuna's own 50 would be all that most searches have.

    The first generation is drawn at random, but for what was tried before.
    """
    from shunter.search.methods.nsga2 import Nsga2

    size = GENERATION if trials is None else max(SMALLEST_GENERATION, round(math.sqrt(trials)))
    return Nsga2(population_size=size, seed=seed)


def _in_memory(study: "Study", trials: "Sequence[FrozenTrial]", cost: Cost | None) -> "Study":
    """A copy of some trials, in which a draw leaves no trace: the search records a point when it begins to train it.

    Of two objectives Optuna overlooks what a pruned trial reached; it counts as if it were complete.
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
