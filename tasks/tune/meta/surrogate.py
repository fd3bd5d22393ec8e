"""What is believed of the points of a search: a Gaussian process for each study, and several of them weighed together.

The weights are those of Feurer, Letham, Hutter and Bakshy, "Practical Transfer Learning for Bayesian Optimization"
(arXiv 1802.02219), section 4, "ranking-weighted Gaussian process ensemble": a study counts as often as it is, in draws
from what is believed, the one that orders the present trials best. One that orders them worse than chance would let the
present trials order themselves is left out, so that unlike data does no harm for long.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm, rankdata

from tasks.tune.method import Cost, Outcome
from tasks.tune.reward import reward

DRAWS = 256  # of the order of the present trials
FEWEST_OBSERVED = 3  # before the present trials can weigh anything
SHORTEST, LONGEST = 0.2, 10.0  # of a length scale, where a whole range is 1
SEED = 0


def scores(outcomes: Sequence[Outcome], cost: Cost | None = None) -> np.ndarray:
    """What came of the points of one study, the lower the better, on a scale that all studies share: `[points]`.

    Their ranks as quantiles of the normal distribution (Salinas et al., "A Quantile-based Approach for Hyperparameter
    Transfer Learning", ICML 2020, section 4.1): NE of two data sets cannot be compared, and one learning rate that is
    too high must not make all others look alike.

    Args:
        outcomes: of the points, failed ones among them.
        cost: what NE is weighed against; see `tasks.tune.reward`.
    """
    paid = [outcome.costs[cost] for outcome in outcomes if cost and outcome.costs.get(cost)]
    reference = float(np.median(paid)) if paid else None
    losses = np.array([-reward(outcome, reference_cost=reference, cost=cost) for outcome in outcomes])
    return norm.ppf((rankdata(losses) - 0.5) / len(losses))


class Surrogate:
    """A Gaussian process over the points of one study.

    Matern 5/2 with a length scale for each column, fitted by its marginal likelihood, and noise.

    Args:
        points: `[points, columns]`, from 0 to 1.
        values: `[points]`, about standard normal.
    """

    def __init__(self, points: np.ndarray, values: np.ndarray) -> None:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        lengths: Any = np.ones(points.shape[1])  # typed as one number, which it may be too
        shape = ConstantKernel(1.0, (0.1, 10.0)) * Matern(lengths, (SHORTEST, LONGEST), nu=2.5)
        self._values = values
        self._process: Any = GaussianProcessRegressor(shape + WhiteKernel(0.1, (0.01, 1.0)), random_state=SEED)
        with warnings.catch_warnings():
            # A length scale at its bound is an answer: the column does not matter.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._process.fit(points, values)

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the value at points, each `[points]`, noise left out."""
        mean, deviation = self._process.predict(points, return_std=True)
        noise = self._process.kernel_.k2.noise_level
        return mean, np.sqrt(np.maximum(deviation**2 - noise, 1e-6))

    def draw(self, points: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Joint draws of the values at points, `[DRAWS, points]`."""
        mean, covariance = self._process.predict(points, return_cov=True)
        return random.multivariate_normal(mean, covariance, size=DRAWS, method="eigh")

    def draw_left_out(self, random: np.random.Generator) -> np.ndarray:
        """Draws of each own value from what the others tell of it, `[DRAWS, points]`.

        In closed form (Rasmussen and Williams, "Gaussian Processes for Machine Learning", equation 5.12).
        """
        from scipy.linalg import cho_solve

        inverse = cho_solve((self._process.L_, True), np.eye(len(self._values)))
        variance = 1 / np.diag(inverse)
        mean = self._values - inverse @ self._values * variance
        return mean + np.sqrt(variance) * random.standard_normal((DRAWS, len(mean)))


@dataclass(frozen=True)
class Ensemble:
    """Surrogates with their weights, which sum to one."""

    members: tuple[Surrogate, ...]
    weights: np.ndarray

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation at points, each `[points]`, of the weighted sum."""
        mean, variance = np.zeros(len(points)), np.zeros(len(points))
        for weight, member in zip(self.weights, self.members, strict=True):
            if weight > 0:
                own, deviation = member.predict(points)
                mean += weight * own
                variance += (weight * deviation) ** 2
        return mean, np.sqrt(variance)


def weigh(
    sources: Sequence[Surrogate],
    nearness: np.ndarray,
    points: np.ndarray,
    values: np.ndarray,
    random: np.random.Generator,
) -> Ensemble:
    """The past's surrogates and that of the present trials, weighed by how well they order the present trials.

    Args:
        sources: of past studies.
        nearness: of their data to the present, positive, `[sources]`; what counts while there are no trials to order.
        points: of the present trials, `[trials, columns]`.
        values: of them, `[trials]`.
        random: of the draws.
    """
    if len(values) < FEWEST_OBSERVED:
        return Ensemble(tuple(sources), nearness / nearness.sum())
    target = Surrogate(points, values)
    own = misordered(target.draw_left_out(random), values)
    losses = np.array([*(misordered(source.draw(points, random), values) for source in sources), own])
    is_out = np.median(losses, axis=1) > np.quantile(own, 0.95)
    losses[is_out] = np.inf
    best = losses == losses.min(axis=0)
    return Ensemble((*sources, target), (best / best.sum(axis=0)).mean(axis=1))


def misordered(draws: np.ndarray, values: np.ndarray) -> np.ndarray:
    """In each draw, `[draws, points]`, the number of ordered pairs of points that it orders unlike the values."""
    drawn = draws[:, :, None] < draws[:, None, :]
    real = values[:, None] < values[None, :]
    return (drawn != real).sum(axis=(1, 2)).astype(np.float64)


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, lowest: float) -> np.ndarray:
    """By how much a value is expected to lie below the lowest so far; see Jones, Schonlau and Welch, 1998, eq. 15."""
    gain = lowest - mean
    return gain * norm.cdf(gain / deviation) + deviation * norm.pdf(gain / deviation)
