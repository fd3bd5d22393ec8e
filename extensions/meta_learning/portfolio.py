"""Portfolio: the few points to try first, chosen so that one of them does well on each past study."""

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
BEST_OF_EACH = 8  # number of points of each study that are candidates
# Largest distance at which the best settings of other data are used directly. Generated data of Criteo's shape has
# distance 0.48 from Criteo; its best settings were worse for Criteo than a search over all settings.
NEAR = 0.25
# Decrease of a data set's weight with its distance: similar data should count more than many others. Tuned on samples
# of Frappe, MovieLens-1M and Criteo (`benchmarks/search/transfer.py`), where 1 was worse for Criteo.
STEEPNESS = 3.0
MOST_POINTS = 200  # largest number of points of a data set for a surrogate, whose cost grows with the cube
FEWEST_POINTS = 3  # smallest number of a study's points in the present space; studies with fewer are skipped


@dataclass(frozen=True)
class Source:
    """Past studies of one other data set, translated to the present space.

    Attributes:
        distance: Distance of the data set from the present one.
        points: Points that were tried on the data set, the best first.
        surrogate: Surrogate fitted to all tried points.
        noise: Standard deviation of a score between seeds; None if no setting was trained twice.
    """

    distance: float
    points: tuple[Parameters, ...]
    surrogate: Surrogate
    noise: float | None = None

    @property
    def nearness(self) -> float:
        """Prior weight of the data set by its distance: 1 for the same data."""
        return math.exp(-STEEPNESS * self.distance)


def sources_of(domain: Domain, past: Sequence[PastStudy], cost: Cost | None = None) -> tuple[Source, ...]:
    """Return the past studies, merged by data name, without studies that have too few points in the space.

    Studies of one data set are more informative together, and their NE values are comparable.
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
    """Return the indices of at most `most` of the ranked trials, for fitting a surrogate.

    One half of `most` are the best trials, the other half are evenly spaced among the other trials.
    """
    if len(ranked) <= most:
        return np.sort(ranked)
    best = most // 2
    return np.sort(np.append(ranked[:best], ranked[np.linspace(best, len(ranked) - 1, most - best).astype(int)]))


def portfolio(domain: Domain, sources: Sequence[Source], size: int = SIZE) -> list[Parameters]:
    """Return points to try first, chosen greedily: each point adds most to the value of the set before it.

    On each past study, the value of a set of points is the value of its best point, by the study's surrogate; the
    studies are weighted by similarity. The first point is the best single point. The next points cover studies on which
    the first point does badly. The set is therefore diverse if the studies disagree (Feurer et al., "Auto-Sklearn 2.0",
    arXiv 2007.04074, section 3.1). The space's own first points are candidates too.
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
    """Return the first points of a search: a portfolio of past studies, or the space's first points without any."""
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
    """Return the studies of very similar data, whose best settings a search can use directly.

    For less similar data, the best settings may be worse than the defaults. Such studies only help methods that learn
    from their own trials how far to trust past studies, such as `transfer`.
    """
    return [study for study in past if study.distance <= NEAR]
