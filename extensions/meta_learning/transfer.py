"""A method that begins where earlier searches ended, and goes on learning from them and from its own trials."""

from collections.abc import Sequence

import numpy as np

from shunter.extensions.meta_learning.belief import NOISES, Seen, believe
from shunter.extensions.meta_learning.points import Domain
from shunter.extensions.meta_learning.portfolio import MOST_POINTS, portfolio, sources_of, thinned
from shunter.extensions.meta_learning.surrogate import expected_improvement
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Outcome, Parameters
from shunter.search.reward import scores

MOST_FAMILIES = 4  # whose first points are tried, where the past says which are promising
OF_PAST = 2  # points of the portfolio: where the past misleads, more of them cost more than they may bring
NEARBY = 8  # trials within which, with a past, only what did best and what is near it are proposed
FEWEST_TOLD = 3  # without a past: fewer say nothing of any other point
LENGTH = 1.0  # of each column, where there is no past to tell
DRAWN = 512  # points drawn from the whole space for each proposal
CHANGED = 32  # changes of each of the best points
BEST = 6  # own trials, and points of each past study, that are changed


class Transfer:
    """Bayesian optimisation with the past's surrogates; see `belief` and `portfolio` beside this file.

    The default comes first, so that no search ends below it, then the first points of the other families, the most
    promising first. Then the points of the portfolio take turns with those of its own: what did well elsewhere is tried
    even where the surrogate is wrong about it, and the trials have their say at once. Its own first points are near
    what did best, here or there, and are those that are expected to be lowest; later ones, of the highest expected
    improvement, are drawn from the whole space too. When the portfolio ends, these go on alone. Points under way count
    as if they had come out as predicted, so that parallel trials differ. All it remembers is what it was told, and
    draws are seeded by how much that is: an interrupted search goes on as it would have.

    Without a past it tries the space's own points first and learns from its own trials alone.
    """

    def __init__(self, context: SearchContext) -> None:
        """Read the past that is in the context."""
        self._context = context
        self._domain = Domain.of(context.space)
        self._sources = sources_of(self._domain, context.past, context.cost)
        of_past = portfolio(self._domain, self._sources, OF_PAST)
        own = context.space.defaults()
        self._families = _firsts(own) if of_past else []
        self._first = of_past or own
        self._lengths = self._lengths_of_past()
        measured = [source for source in self._sources if source.noise is not None]
        nearest = min(measured, key=lambda source: source.distance, default=None)
        # What chance does to a score on the nearest data that says so, instead of constants.
        self._noises = NOISES if nearest is None or nearest.noise is None else (nearest.noise,)
        self._told: list[tuple[Parameters, Outcome]] = []
        self._under_way: list[Parameters] = []

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """The next of the first points, or one of its own; None when none is left."""
        tried = [point for point, _ in self._told] + self._under_way
        point = self._first_of_families(tried)
        if point is None:
            first = next((point for point in self._first if point not in tried), None)
            turn = len(tried) - min(len(self._families), MOST_FAMILIES)  # portfolio, own, portfolio, own ...
            is_own_turn = self._sources and turn % 2 == 1
            point = (self._propose(tried) if is_own_turn else None) or first or self._propose(tried)
        if point is not None:
            self._under_way.append(point)
        return point

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Learn what came of a point."""
        if parameters in self._under_way:
            self._under_way.remove(parameters)
        self._told.append((parameters, outcome))

    def _first_of_families(self, tried: Sequence[Parameters]) -> Parameters | None:
        """The default, then of the other families' first points the one that is expected to be lowest; None after them.

        Which family wins differs more from data to data than how it is set best.
        """
        left = [point for point in self._families if point not in tried]
        if not left or len(self._families) - len(left) >= MOST_FAMILIES:
            return None
        if len(left) == len(self._families) or not self._told:
            return left[0]
        return left[int(np.argmin(self._means(left)))]

    def _propose(self, tried: Sequence[Parameters]) -> Parameters | None:
        random = np.random.default_rng([self._context.seed, len(tried)])
        candidates = [point for point in self._candidates(random, len(tried)) if point not in tried]
        if not candidates:
            return None
        if not self._sources and len(self._told) < FEWEST_TOLD:
            return candidates[-1]  # one that was drawn: nothing is known yet
        if self._sources and self._told and len(tried) < NEARBY:
            return candidates[int(np.argmin(self._means(candidates)))]
        return candidates[int(np.argmax(self._improvement(candidates, list(tried))))]

    def _candidates(self, random: np.random.Generator, tried: int) -> list[Parameters]:
        values = scores([outcome for _, outcome in self._told], self._context.cost) if self._told else np.zeros(0)
        own = [self._told[place][0] for place in np.argsort(values, kind="stable")[:BEST]]
        of_past = [point for source in self._sources for point in source.points[:BEST]]
        changed = [self._domain.change(point, random) for point in own for _ in range(CHANGED)]
        changed += [self._domain.change(point, random) for point in of_past for _ in range(CHANGED // 4)]
        if self._sources and tried < NEARBY:
            return [*self._context.space.defaults(), *of_past, *changed]
        return [*of_past, *changed, *self._domain.draw(DRAWN, random)]

    def _means(self, candidates: list[Parameters]) -> np.ndarray:
        """What is expected of each candidate after the trials so far."""
        values = scores([outcome for _, outcome in self._told], self._context.cost)
        return self._belief(self._seen([point for point, _ in self._told]), values, self._seen(candidates))[0]

    def _improvement(self, candidates: list[Parameters], tried: list[Parameters]) -> np.ndarray:
        """Expected improvement of each candidate on the lowest mean at what was tried."""
        values = scores([outcome for _, outcome in self._told], self._context.cost)
        learned = thinned(np.argsort(values, kind="stable"), MOST_POINTS)
        told, values = self._seen([self._told[place][0] for place in learned]), values[learned]
        for point in self._under_way:  # each as if it had come out as expected
            pending = self._seen([point])
            mean, _ = self._belief(told, values, pending)
            told, values = told.plus(pending), np.append(values, mean)
        mean, deviation = self._belief(told, values, self._seen(candidates))
        lowest = self._belief(told, values, self._seen(tried))[0].min()
        return expected_improvement(mean, deviation, float(lowest))

    def _belief(self, told: Seen, values: np.ndarray, asked: Seen) -> tuple[np.ndarray, np.ndarray]:
        nearness = np.array([source.nearness for source in self._sources])
        return believe(told, values, asked, lengths=self._lengths, nearness=nearness, noises=self._noises)

    def _lengths_of_past(self) -> np.ndarray:
        """How far each column reaches: the geometric mean of the past studies."""
        if not self._sources:
            return np.full(self._domain.encode([]).shape[1], LENGTH)
        return np.exp(np.mean([np.log(source.surrogate.lengths) for source in self._sources], axis=0))

    def _seen(self, points: list[Parameters]) -> Seen:
        encoded = self._domain.encode(points)
        predicted = [source.surrogate.predict(encoded) for source in self._sources]
        return Seen(encoded, np.array(predicted).reshape(len(self._sources), len(points)).T)


def _firsts(points: Sequence[Parameters]) -> list[Parameters]:
    """Of each family the first point; the first of all where there is one family."""
    return list({point.get("family"): point for point in reversed(points)}.values())[::-1]
