"""Surrogate of a past study: a Gaussian process on its outcomes, which are scaled for comparison between studies."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from shunter.search.protocol import Cost, Outcome
from shunter.search.reward import losses_of, scores

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
