"""The points to try first: few, and together good on all that was learned from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.extensions.meta_learning.points import Domain
from shunter.extensions.meta_learning.surrogate import Surrogate, noise_of_scores
from shunter.search.context import PastStudy
from shunter.search.protocol import Cost, Parameters, Space
from shunter.search.reward import scores

SIZE = 4
BEST_OF_EACH = 8  # points of each study among which is chosen
# Distance up to which data are so alike that their best settings can be taken over as they are. Generated data of
# Criteo's shape are .48 from Criteo; taken over from these, the best settings served Criteo worse than asking all did.
NEAR = 0.25
# Of what a data set counts by its distance: like data say more than many others. Set on Frappe, MovieLens-1M and Criteo
# as samples (`benchmarks/search/transfer.py`), where 1 served Criteo worse.
STEEPNESS = 3.0
MOST_POINTS = 200  # of each data set that a surrogate learns from: its work grows with the cube
FEWEST_POINTS = 3  # of a study that lie in the present space: from fewer nothing is learned


@dataclass(frozen=True)
class Source:
    """What is known of one other data set, in the terms of the present space.

    Attributes:
        distance: Distance of the data set from the present one.
        points: Points that were tried there, the best first.
        surrogate: Model of all points, fitted to those that were tried.
        noise: Standard deviation of a score there from seed to seed; None where no setting was trained twice.
    """

    distance: float
    points: tuple[Parameters, ...]
    surrogate: Surrogate
    noise: float | None = None

    @property
    def nearness(self) -> float:
        """How much it counts beside the others while nothing else is known: 1 for the same data."""
        return math.exp(-STEEPNESS * self.distance)


def sources_of(domain: Domain, past: Sequence[PastStudy], cost: Cost | None = None) -> tuple[Source, ...]:
    """The past studies, those of data of one name together; what has too little in common with the space is left out.

    Studies of one data set say more together than each by itself, and their NE can be compared.
    """
    by_name: dict[str, list[PastStudy]] = {}
    for study in past:
        by_name.setdefault(study.name, []).append(study)
    return tuple(source for studies in by_name.values() if (source := _source(domain, studies, cost)) is not None)


def _source(domain: Domain, studies: Sequence[PastStudy], cost: Cost | None) -> Source | None:
    moved = [(domain.translate(parameters), outcome) for study in studies for parameters, outcome in study.trials]
    kept = [(point, outcome) for point, outcome in moved if point is not None]
    if len(kept) < FEWEST_POINTS:
        return None
    outcomes = [outcome for _, outcome in kept]
    points, values = [point for point, _ in kept], scores(outcomes, cost)
    measured = [study.noise for study in studies if study.noise is not None]
    noise = noise_of_scores(outcomes, float(np.median(measured)), cost) if measured else None
    ranked = np.argsort(values, kind="stable")
    learned = thinned(ranked, MOST_POINTS)
    return Source(
        distance=min(study.distance for study in studies),
        points=tuple(_distinct([points[place] for place in ranked])),
        surrogate=Surrogate(domain.encode([points[place] for place in learned]), values[learned], noise),
        noise=noise,
    )


def thinned(ranked: np.ndarray, most: int) -> np.ndarray:
    """Of many trials, ranked by what they reached, those that are learned from, in the order in which they were made.

    They are the best half of `most`, and the others evenly.
    """
    if len(ranked) <= most:
        return np.sort(ranked)
    best = most // 2
    return np.sort(np.append(ranked[:best], ranked[np.linspace(best, len(ranked) - 1, most - best).astype(int)]))


def portfolio(domain: Domain, sources: Sequence[Source], size: int = SIZE) -> list[Parameters]:
    """Points to try first, chosen greedily: each next one is what the points before it leave most to gain from.

    On each past study a set of points is worth its best one, by the study's surrogate; the studies count by their
    nearness. Of the greedy choice the first is the best single point, and the others serve what it serves badly, so the
    set is diverse where the past disagrees (Feurer et al., "Auto-Sklearn 2.0", arXiv 2007.04074, section 3.1). The
    space's own first points are among the candidates.
    """
    if not sources:
        return []
    best = [point for source in sources for point in source.points[:BEST_OF_EACH]]
    candidates = _distinct([*best, *domain.space.defaults()])
    encoded = domain.encode(candidates)
    worth = np.stack([source.surrogate.predict(encoded) for source in sources])
    weights = np.array([source.nearness for source in sources])
    chosen: list[int] = []
    reached = np.full(len(sources), np.inf)
    while len(chosen) < min(size, len(candidates)):
        left = [place for place in range(len(candidates)) if place not in chosen]
        totals = [float(weights @ np.minimum(reached, worth[:, place])) for place in left]
        chosen.append(left[int(np.argmin(totals))])
        reached = np.minimum(reached, worth[:, chosen[-1]])
    return [candidates[place] for place in chosen]


def first_points(space: Space, past: Sequence[PastStudy], cost: Cost | None = None) -> list[Parameters]:
    """What a search tries first: the best of the past, or the space's own points where there is none."""
    if not past:
        return space.defaults()
    domain = Domain.of(space)
    return portfolio(domain, sources_of(domain, past, cost)) or space.defaults()


def _distinct(points: Sequence[Parameters]) -> list[Parameters]:
    kept: list[Parameters] = []
    for point in points:
        if point not in kept:
            kept.append(point)
    return kept


def near(past: Sequence[PastStudy]) -> list[PastStudy]:
    """The studies of data so alike that a search can take over their best settings, and ask nothing more of them.

    Of data farther away the best settings are a start that may be worse than the defaults: what is learned there helps
    a method that finds out from its own trials how far to believe it, as `transfer` does.
    """
    return [study for study in past if study.distance <= NEAR]
