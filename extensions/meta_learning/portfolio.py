"""Portfolio: the few points to try first, chosen so that one of them does well on each past study.

The surrogate of a past study is a Gaussian process on its outcomes, which are scaled for comparison between studies.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shunter.extensions.meta_learning.points import Domain
from shunter.search.context import PastStudy
from shunter.search.protocol import Cost, Outcome, Parameters, Space
from shunter.search.reward import losses_of, scores

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
SHORTEST, LONGEST = 0.2, 10.0  # bounds of a length scale, for columns from 0 to 1
NOISE_BOUNDS = (0.05, 1.0)  # bounds of a score's noise: without noise the matrix can be singular; 1 explains all
SEED = 0


def noise_of_scores(outcomes: Sequence[Outcome], noise: float, cost: Cost | None = None) -> float:
    """Return the standard deviation of a score between seeds, in the better half of a study.

    Args:
        outcomes: Outcomes of the study's points.
        noise: Standard deviation of a loss between seeds.
        cost: Name of the cost; see `shunter.search.reward.scores`.
    """
    losses, values = losses_of(outcomes, cost), scores(outcomes, cost)
    order = np.argsort(losses, kind="stable")
    better = order[: max(1, len(order) // 2)]
    moved = np.interp(losses[better] + noise, losses[order], values[order]) - values[better]
    return float(np.clip(moved.mean(), *NOISE_BOUNDS))


class Surrogate:
    """Gaussian process over the points of one study.

    Matern 5/2 kernel with one length scale per column and noise, fitted by marginal likelihood.

    Args:
        points: `[points, columns]`, from 0 to 1.
        values: `[points]`, about standard normal.
        noise: Measured standard deviation of a value between seeds; None to fit it.
    """

    def __init__(self, points: np.ndarray, values: np.ndarray, noise: float | None = None) -> None:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        lengths: Any = np.ones(points.shape[1])  # scikit-learn's type is a single number, but arrays are allowed
        shape = ConstantKernel(1.0, (0.1, 10.0)) * Matern(lengths, (SHORTEST, LONGEST), nu=2.5)
        by_chance = WhiteKernel(0.1, (0.01, 1.0)) if noise is None else WhiteKernel(noise**2, "fixed")
        self._process: Any = GaussianProcessRegressor(shape + by_chance, random_state=SEED)
        with warnings.catch_warnings():
            # A length scale at its bound is a valid result: the column has no effect.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._process.fit(points, values)

    @property
    def lengths(self) -> np.ndarray:
        """Length scale of each column, `[columns]`."""
        return np.atleast_1d(self._process.kernel_.k1.k2.length_scale)

    def predict(self, points: np.ndarray) -> np.ndarray:
        """Return the mean of the value at points, `[points]`."""
        return self._process.predict(points)


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, lowest: float) -> np.ndarray:
    """Return the expected improvement on the lowest value so far; see Jones, Schonlau and Welch, 1998, eq. 15."""
    from scipy.stats import norm

    gain = lowest - mean
    return gain * norm.cdf(gain / deviation) + deviation * norm.pdf(gain / deviation)


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
