"""Gaussian-process regression on a few dozen observations with individual noise, some of them only lower bounds.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1. Lower bounds (from runs that
were stopped early) enter one after the other by matching the moments of the truncated normal: assumed density filtering
(Minka, "A family of algorithms for approximate Bayesian inference", 2001, section 3.2).

The priors are fixed, not fitted, because with a dozen observations the marginal likelihood has no clear maximum. The
regressor of scikit-learn supports no bounds and takes ten times as long on problems this small.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_ndtr, ndtri

Kernel = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Prior covariance `[a, b]` of two sets of inputs, `[a, columns]` and `[b, columns]`."""

VAGUE_DEVIATION = 5.0  # of the level: two deviations on the logarithmic scale are a factor of over 10,000
JITTER = 1e-9
LOG_ROOT_TWO_PI = np.log(np.sqrt(2 * np.pi))


@dataclass(frozen=True)
class Level:
    """Prior belief about the mean of all values.

    Attributes:
        mean: Expected mean.
        deviation: Standard deviation of the belief.
    """

    mean: float
    deviation: float = VAGUE_DEVIATION


@dataclass(frozen=True)
class Posterior:
    """Joint belief about several quantities.

    Attributes:
        mean: Expected values, `[n]`.
        covariance: Their covariance, `[n, n]`.
        noise: Standard deviation of a new observation of a quantity about its value.
    """

    mean: np.ndarray
    covariance: np.ndarray
    noise: float = 0.0

    @property
    def deviation(self) -> np.ndarray:
        """Return the standard deviation of each quantity, `[n]`."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def of(self, indices: np.ndarray) -> "Posterior":
        """Return the belief about some of the quantities."""
        return Posterior(self.mean[indices], self.covariance[np.ix_(indices, indices)], self.noise)

    def deviation_from(self, index: int) -> np.ndarray:
        """Return the standard deviation of each quantity's difference to the quantity at `index`, `[n]`."""
        own = np.diag(self.covariance)
        return np.sqrt(np.maximum(own + own[index] - 2 * self.covariance[index], 0.0))

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Return one joint sample, `[n]`."""
        values, vectors = np.linalg.eigh(self.covariance)
        return self.mean + vectors @ (np.sqrt(np.maximum(values, 0.0)) * random.standard_normal(len(self.mean)))


@dataclass(frozen=True)
class Observations:
    """Observations: inputs `[n, columns]`, values `[n]`, and the standard deviation of each value, `[n]`."""

    inputs: np.ndarray
    values: np.ndarray
    noise: np.ndarray


def regress(kernel: Kernel, seen: Observations, queries: np.ndarray, level: Level | None = None) -> Posterior:
    """Return the belief about the values at `queries`, `[q]`, given the observations.

    Args:
        kernel: Prior covariance.
        seen: Observations; at least one observation, unless a level is given.
        queries: Inputs `[q, columns]`.
        level: Prior belief in the mean of all values; unknown by default.
    """
    level = level or Level(float(seen.values.mean()))

    def shifting(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return kernel(first, second) + level.deviation**2

    if not len(seen.values):
        return Posterior(np.full(len(queries), level.mean), shifting(queries, queries))
    factor = cho_factor(shifting(seen.inputs, seen.inputs) + np.diag(seen.noise**2 + JITTER), lower=True)
    cross = shifting(queries, seen.inputs)
    mean = level.mean + cross @ cho_solve(factor, seen.values - level.mean)
    return Posterior(mean, shifting(queries, queries) - cross @ cho_solve(factor, cross.T))


def log_evidence(kernel: Kernel, seen: Observations, level: Level | None = None) -> float:
    """Return the log marginal likelihood of the values under this prior, up to a constant.

    Args:
        kernel: Prior covariance.
        seen: Observations; at least one observation.
        level: Prior belief in the mean of all values; unknown by default.
    """
    level = level or Level(float(seen.values.mean()))
    covariance = kernel(seen.inputs, seen.inputs) + level.deviation**2 + np.diag(seen.noise**2 + JITTER)
    factor = cho_factor(covariance, lower=True)
    away = seen.values - level.mean
    return -0.5 * float(away @ cho_solve(factor, away)) - float(np.log(np.diag(factor[0])).sum())


def with_lower_bounds(
    kernel: Kernel,
    seen: Observations,
    inputs: np.ndarray,
    bounds: Sequence[float],
    noise: float,
    *,
    level: Level | None = None,
) -> Observations:
    """Return the observations extended by pseudo-observations for values with only a lower bound.

    A bound far below the expected value adds nothing; a bound above it moves the belief upwards.

    Args:
        kernel: Prior covariance.
        seen: Fully observed values; at least one, unless a level is given.
        inputs: Inputs of the bounds, `[n, columns]`.
        bounds: Lower bound of each value, `[n]`.
        noise: Standard deviation of a single value.
        level: Prior belief in the mean of all values; unknown by default.
    """
    for row, bound in zip(inputs, bounds, strict=True):
        believed = regress(kernel, seen, row[None], level)
        mean, variance = float(believed.mean[0]), float(believed.covariance[0, 0]) + noise**2
        deviation = variance**0.5
        short = (mean - bound) / deviation
        hazard = np.exp(-(short**2) / 2.0 - LOG_ROOT_TWO_PI - log_ndtr(short))
        shrunk = variance * max(1 - hazard * (hazard - (bound - mean) / deviation), 1e-6)
        if shrunk > variance * (1 - 1e-4):
            continue
        site_variance = 1 / (1 / shrunk - 1 / variance)
        site_mean = site_variance * ((mean + deviation * hazard) / shrunk - mean / variance)
        seen = Observations(
            np.vstack([seen.inputs, row]),
            np.append(seen.values, site_mean),
            np.append(seen.noise, (site_variance + noise**2) ** 0.5),
        )
    return seen


def similarity(first: np.ndarray, second: np.ndarray, length: float) -> np.ndarray:
    """Return the squared-exponential kernel of two sets of numbers, `[a]` and `[b]`, as `[a, b]`."""
    return np.exp(-0.5 * ((first[:, None] - second[None, :]) / length) ** 2)


QUANTILES = ndtri((np.arange(50) + 0.5) / 50)
"""Quantiles of the standard normal at equal probabilities; means over them approximate integrals."""


def knowledge_gradient(belief: Posterior) -> np.ndarray:
    """Return how much one more observation of each option should lower the least mean log cost, `[n]`.

    An observation of one option also changes the belief about correlated options (Frazier, Powell and Dayanik, "The
    Knowledge-Gradient Policy for Correlated Normal Beliefs", 2009, equation 12; by quantiles of the observation).
    Observing a known option again has no value, which expected improvement does not capture.

    Args:
        belief: Belief about the log cost, with the noise of an observation.
    """
    variance = np.maximum(np.diag(belief.covariance), 0.0) + belief.noise**2
    shifts = belief.covariance / np.sqrt(np.maximum(variance, 1e-12))  # [n, observed]: per deviation of the observation
    least = (belief.mean[:, None, None] + shifts[:, :, None] * QUANTILES).min(axis=0)
    return np.maximum(belief.mean.min() - least.mean(axis=1), 0.0)
