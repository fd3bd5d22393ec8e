"""A Gaussian process over the errors of predictions: a constant, a Matern kernel, and noise.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1 and section 5.4.1. It answers as
scikit-learn's regressor does with the same kernel, which a test compares; loading that library takes half a second of
every training, more than all that is learned here.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

JITTER = 1e-10  # keeps the matrix regular
ROOT5 = 5**0.5


@dataclass(frozen=True)
class Scales:
    """What the errors are like.

    Attributes:
        common: Variance of what is common to all of them.
        own: Variance of what varies with the inputs.
        length: Distance of inputs over which that varies.
        noise: Variance of each observation about its value.
    """

    common: float
    own: float
    length: float
    noise: float


@dataclass(frozen=True)
class ErrorProcess:
    """What was learned from observations; made by `fit`.

    Attributes:
        scales: What the errors are like.
        inputs: Inputs of the observations, `[n, columns]`.
        factor: Lower Cholesky factor of their covariance, `[n, n]`.
        alpha: Their values times the inverse of that covariance, `[n]`.
    """

    scales: Scales
    inputs: np.ndarray
    factor: np.ndarray
    alpha: np.ndarray

    @classmethod
    def fit(
        cls,
        inputs: np.ndarray,
        values: np.ndarray,
        deviations: np.ndarray,
        scales: Scales,
        bounds: tuple[Scales, Scales] | None = None,
    ) -> Self:
        """Learn from observations.

        Args:
            inputs: Inputs, `[n, columns]`, at least one.
            values: Error at each, `[n]`.
            deviations: Standard deviation of each beyond the noise that all share, `[n]`.
            scales: Scales of the errors, or where the search for the likeliest begins.
            bounds: The least and the largest scales of that search; None takes them as they are.
        """
        extra = JITTER + np.square(deviations)
        if bounds is not None:
            scales = _likeliest(_distances(inputs, inputs), values, extra, scales, bounds)
        covariance = _kernel(_distances(inputs, inputs), scales) + np.diag(extra + scales.noise)
        factor = np.linalg.cholesky(covariance)
        return cls(scales, inputs, factor, np.linalg.solve(covariance, values))

    def predict(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of one more observation at each of the inputs, `[n, columns]`."""
        from scipy.linalg import solve_triangular

        cross = _kernel(_distances(inputs, self.inputs), self.scales)
        known = np.square(solve_triangular(self.factor, cross.T, lower=True)).sum(axis=0)
        variances = self.scales.common + self.scales.own + self.scales.noise - known
        return cross @ self.alpha, np.sqrt(np.maximum(variances, 0.0))


def _distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Euclidean distances, `[a, b]`."""
    squares = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1) - 2 * first @ second.T
    if first is second:
        np.fill_diagonal(squares, 0.0)
    return np.sqrt(np.maximum(squares, 0.0))


def _kernel(distances: np.ndarray, scales: Scales) -> np.ndarray:
    """Prior covariance of the values themselves: constant plus Matern 5/2."""
    return scales.common + scales.own * _matern(ROOT5 * distances / scales.length)


def _matern(reach: np.ndarray) -> np.ndarray:
    return (1 + reach + np.square(reach) / 3) * np.exp(-reach)


def _likeliest(
    distances: np.ndarray, values: np.ndarray, extra: np.ndarray, scales: Scales, bounds: tuple[Scales, Scales]
) -> Scales:
    """The scales under which the values are likeliest, searched on logarithms from those that are given."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    identity = np.eye(len(values))

    def surprise(logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative logarithm of the marginal likelihood but for a constant, and its gradient."""
        one = Scales(*np.exp(logs).tolist())
        reach = ROOT5 * distances / one.length
        decay, matern = np.exp(-reach), _matern(reach)
        factor = cho_factor(one.common + one.own * matern + np.diag(extra + one.noise), lower=True)
        alpha = cho_solve(factor, values)
        pull = np.outer(alpha, alpha) - cho_solve(factor, identity)
        slopes = (
            np.full_like(matern, one.common),
            one.own * matern,
            one.own * np.square(reach) * (1 + reach) * decay / 3,
            one.noise * identity,
        )
        likelihood = -0.5 * values @ alpha - np.log(np.diag(factor[0])).sum()
        return -float(likelihood), -0.5 * np.array([np.vdot(pull, slope) for slope in slopes])

    least, largest = (np.log(_as_array(bound)) for bound in bounds)
    limits = list(zip(least, largest, strict=True))
    found = minimize(surprise, np.log(_as_array(scales)), jac=True, method="L-BFGS-B", bounds=limits)
    return Scales(*np.exp(found.x).tolist())


def _as_array(scales: Scales) -> np.ndarray:
    return np.array([scales.common, scales.own, scales.length, scales.noise])
