"""Gaussian process over prediction errors: a constant, a Matern 5/2 kernel, and noise.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1 and section 5.4.1. The results
equal those of scikit-learn's regressor with the same kernel; a test compares them. Importing scikit-learn takes half a
second of every training run, longer than all of a run's fits.
"""

from dataclasses import astuple, dataclass
from typing import Self

import numpy as np

JITTER = 1e-10  # keeps the matrix regular
ROOT5 = 5**0.5


@dataclass(frozen=True)
class Scales:
    """Hyperparameters of the Gaussian process.

    Attributes:
        common: Variance of the constant term, shared by all errors.
        own: Variance of the Matern term, which depends on the inputs.
        length: Length scale of the Matern term, as a distance of inputs.
        noise: Variance of the observation noise.
    """

    common: float
    own: float
    length: float
    noise: float


@dataclass(frozen=True)
class ErrorProcess:
    """Gaussian process conditioned on observations; made by `fit`.

    Attributes:
        scales: Hyperparameters.
        inputs: Inputs of the observations, `[n, columns]`.
        factor: Lower Cholesky factor of the observations' covariance, `[n, n]`.
        alpha: Inverse of the covariance times the observed values, `[n]`.
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
        """Fit the process to observations.

        Args:
            inputs: Inputs, `[n, columns]`, at least one row.
            values: Error at each input, `[n]`.
            deviations: Standard deviation of each observation in addition to the shared noise, `[n]`.
            scales: Hyperparameters, or the start of the search that maximises the marginal likelihood.
            bounds: Lower and upper bounds of the search; None uses `scales` unchanged.
        """
        extra = JITTER + np.square(deviations)
        if bounds is not None:
            scales = _likeliest(_distances(inputs, inputs), values, extra, scales, bounds)
        covariance = _kernel(_distances(inputs, inputs), scales) + np.diag(extra + scales.noise)
        factor = np.linalg.cholesky(covariance)
        return cls(scales, inputs, factor, np.linalg.solve(covariance, values))

    def predict(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation, `[n]` each, of a new observation at the inputs, `[n, columns]`."""
        from scipy.linalg import solve_triangular

        cross = _kernel(_distances(inputs, self.inputs), self.scales)
        known = np.square(solve_triangular(self.factor, cross.T, lower=True)).sum(axis=0)
        variances = self.scales.common + self.scales.own + self.scales.noise - known
        return cross @ self.alpha, np.sqrt(np.maximum(variances, 0.0))


def _distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return Euclidean distances, `[a, b]`, between rows of `first`, `[a, columns]`, and `second`, `[b, columns]`."""
    squares = np.square(first).sum(axis=1)[:, None] + np.square(second).sum(axis=1) - 2 * first @ second.T
    if first is second:
        np.fill_diagonal(squares, 0.0)
    return np.sqrt(np.maximum(squares, 0.0))


def _kernel(distances: np.ndarray, scales: Scales) -> np.ndarray:
    """Return the prior covariance without noise: constant plus Matern 5/2."""
    return scales.common + scales.own * _matern(ROOT5 * distances / scales.length)


def _matern(reach: np.ndarray) -> np.ndarray:
    return (1 + reach + np.square(reach) / 3) * np.exp(-reach)


def _likeliest(
    distances: np.ndarray, values: np.ndarray, extra: np.ndarray, scales: Scales, bounds: tuple[Scales, Scales]
) -> Scales:
    """Maximise the marginal likelihood over the logarithms of the hyperparameters, starting from `scales`."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    identity = np.eye(len(values))

    def surprise(logs: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative log marginal likelihood, up to a constant, and its gradient."""
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

    least, largest = (np.log(astuple(bound)) for bound in bounds)
    limits = list(zip(least, largest, strict=True))
    found = minimize(surprise, np.log(astuple(scales)), jac=True, method="L-BFGS-B", bounds=limits)
    return Scales(*np.exp(found.x).tolist())
