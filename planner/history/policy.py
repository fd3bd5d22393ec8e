"""What one more run is expected to teach, where none of the options is known for certain."""

import numpy as np
from scipy.special import ndtri

from shunter.planner.history.gaussian_process import Posterior

QUANTILES = ndtri((np.arange(50) + 0.5) / 50)
"""Of a standard normal, evenly likely: the mean over them stands for the integral."""


def knowledge_gradient(belief: Posterior) -> np.ndarray:
    """By how much one more observation of each option is expected to lower the least mean; in log cost, `[n]`.

    What is observed of one option tells of those that are believed to be like it (Frazier, Powell and Dayanik, "The
    Knowledge-Gradient Policy for Correlated Normal Beliefs", 2009, equation 12; by quantiles of the observation). To
    observe again what is known already promises nothing, which expected improvement does not notice.

    Args:
        belief: Belief about the log cost, with the noise of an observation.
    """
    variance = np.maximum(np.diag(belief.covariance), 0.0) + belief.noise**2
    shifts = belief.covariance / np.sqrt(np.maximum(variance, 1e-12))  # [n, observed]: by one deviation of what is seen
    least = (belief.mean[:, None, None] + shifts[:, :, None] * QUANTILES).min(axis=0)
    return np.maximum(belief.mean.min() - least.mean(axis=1), 0.0)
