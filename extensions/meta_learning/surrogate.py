"""What a past study says of any point: a Gaussian process on its outcomes, which are put on a scale for all studies."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from shunter.search.protocol import Cost, Outcome
from shunter.search.reward import losses_of, scores

SHORTEST, LONGEST = 0.2, 10.0  # of a length scale, where a whole range is 1
NOISE_BOUNDS = (0.05, 1.0)  # of a score: a process without noise does not invert, and more is nothing but noise
SEED = 0


def noise_of_scores(outcomes: Sequence[Outcome], noise: float, cost: Cost | None = None) -> float:
    """By how much chance moves a score, among the better half of a study, where settings are hard to tell apart.

    Args:
        outcomes: Outcomes of its points.
        noise: Standard deviation of a loss from seed to seed.
        cost: Cost that NE is weighed against.
    """
    losses, values = losses_of(outcomes, cost), scores(outcomes, cost)
    order = np.argsort(losses, kind="stable")
    better = order[: max(1, len(order) // 2)]
    moved = np.interp(losses[better] + noise, losses[order], values[order]) - values[better]
    return float(np.clip(moved.mean(), *NOISE_BOUNDS))


class Surrogate:
    """A Gaussian process over the points of one study.

    Matern 5/2 with a length scale for each column, fitted by its marginal likelihood, and noise.

    Args:
        points: `[points, columns]`, from 0 to 1.
        values: `[points]`, about standard normal.
        noise: Standard deviation of a value from seed to seed, where it was measured; None fits it too.
    """

    def __init__(self, points: np.ndarray, values: np.ndarray, noise: float | None = None) -> None:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        lengths: Any = np.ones(points.shape[1])  # typed as one number, which it may be too
        shape = ConstantKernel(1.0, (0.1, 10.0)) * Matern(lengths, (SHORTEST, LONGEST), nu=2.5)
        by_chance = WhiteKernel(0.1, (0.01, 1.0)) if noise is None else WhiteKernel(noise**2, "fixed")
        self._process: Any = GaussianProcessRegressor(shape + by_chance, random_state=SEED)
        with warnings.catch_warnings():
            # A length scale at its bound is an answer: the column does not matter.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._process.fit(points, values)

    @property
    def lengths(self) -> np.ndarray:
        """Length scale of each column, `[columns]`."""
        return np.atleast_1d(self._process.kernel_.k1.k2.length_scale)

    def predict(self, points: np.ndarray) -> np.ndarray:
        """Mean of the value at points, `[points]`."""
        return self._process.predict(points)


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, lowest: float) -> np.ndarray:
    """By how much a value is expected to lie below the lowest so far; see Jones, Schonlau and Welch, 1998, eq. 15."""
    from scipy.stats import norm

    gain = lowest - mean
    return gain * norm.cdf(gain / deviation) + deviation * norm.pdf(gain / deviation)
