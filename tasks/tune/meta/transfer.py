"""A method that begins where earlier searches ended, and goes on learning from them and from its own trials."""

from collections.abc import Sequence

import numpy as np

from tasks.tune.meta.points import Domain
from tasks.tune.meta.portfolio import portfolio, sources_of
from tasks.tune.meta.surrogate import FEWEST_OBSERVED, expected_improvement, scores, weigh
from tasks.tune.method import BudgetLeft, Outcome, Parameters
from tasks.tune.methods import SearchContext

DRAWN = 512  # points drawn from the whole space for each proposal
CHANGED = 32  # changes of each of the best points
BEST = 6  # own trials, and points of each past study, that are changed


class Transfer:
    """Bayesian optimisation with the past's surrogates; see `surrogate` and `portfolio` beside this file.

    The portfolio comes first. Then the point of the highest expected improvement is proposed, among points drawn from
    the whole space and changes of the best ones; points under way count as if they had come out as predicted, so that
    parallel trials differ. All it remembers is what it was told, and draws are seeded by how much that is: an
    interrupted search goes on as it would have.

    Without a past it tries the space's own points first and learns from its own trials alone.
    """

    def __init__(self, context: SearchContext) -> None:
        """Read the past that is in the context."""
        self._context = context
        self._domain = Domain.of(context.space)
        self._sources = sources_of(self._domain, context.past, context.cost)
        self._first = portfolio(self._domain, self._sources) or context.space.defaults()
        self._told: list[tuple[Parameters, Outcome]] = []
        self._under_way: list[Parameters] = []

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """The next of the first points, or the one of the highest expected improvement; None when none is left."""
        tried = [point for point, _ in self._told] + self._under_way
        point = next((point for point in self._first if point not in tried), None) or self._propose(tried)
        if point is not None:
            self._under_way.append(point)
        return point

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Learn what came of a point."""
        if parameters in self._under_way:
            self._under_way.remove(parameters)
        self._told.append((parameters, outcome))

    def _propose(self, tried: Sequence[Parameters]) -> Parameters | None:
        random = np.random.default_rng([self._context.seed, len(tried)])
        candidates = [point for point in self._candidates(random) if point not in tried]
        if not candidates:
            return None
        if not self._sources and len(self._told) < FEWEST_OBSERVED:
            return candidates[-1]  # one that was drawn: nothing is known yet
        mean, deviation, lowest = self._believe(candidates, tried, random)
        return candidates[int(np.argmax(expected_improvement(mean, deviation, lowest)))]

    def _candidates(self, random: np.random.Generator) -> list[Parameters]:
        values = scores([outcome for _, outcome in self._told], self._context.cost) if self._told else np.zeros(0)
        own = [self._told[place][0] for place in np.argsort(values, kind="stable")[:BEST]]
        of_past = [point for source in self._sources for point in source.points[:BEST]]
        changed = [self._domain.change(point, random) for point in own for _ in range(CHANGED)]
        changed += [self._domain.change(point, random) for point in of_past for _ in range(CHANGED // 4)]
        return [*of_past, *changed, *self._domain.draw(DRAWN, random)]

    def _believe(
        self, candidates: list[Parameters], tried: Sequence[Parameters], random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean and deviation at the candidates, and the lowest mean at what was tried."""
        told = self._domain.encode([point for point, _ in self._told])
        values = scores([outcome for _, outcome in self._told], self._context.cost)
        nearness = np.array([source.nearness for source in self._sources])
        surrogates = [source.surrogate for source in self._sources]
        ensemble = weigh(surrogates, nearness, told, values, random)
        for point in self._under_way:  # each as if it had come out as expected
            encoded = self._domain.encode([point])
            told, values = np.vstack([told, encoded]), np.append(values, ensemble.predict(encoded)[0])
            ensemble = weigh(surrogates, nearness, told, values, random)
        mean, deviation = ensemble.predict(self._domain.encode(candidates))
        return mean, deviation, float(ensemble.predict(self._domain.encode(list(tried)))[0].min())
