"""Expected information gain of one more run if the value of every option is uncertain."""

import numpy as np
from scipy.special import ndtri

from shunter.planner.history.gaussian_process import Posterior

QUANTILES = ndtri((np.arange(50) + 0.5) / 50)
"""Of a standard normal, evenly likely: the mean over them stands for the integral."""


def knowledge_gradient(belief: Posterior) -> np.ndarray:
    """Return the expected decrease of the lowest mean by one more observation of each option; in log cost, `[n]`.

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
