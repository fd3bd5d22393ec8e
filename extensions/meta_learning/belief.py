"""Prediction of the value of points in the present search, from its own trials and the predictions of past studies.

The model is a Gaussian process on the present trials only. Its prior mean is the prediction of the past studies times a
share, and its length scales are those of the past studies times a factor. Share and factor are not fitted, because with
a dozen trials the marginal likelihood has no clear maximum. Instead a few hypotheses are averaged, weighted by their
marginal likelihood on the present trials (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006,
sections 2.7 on mean functions and 5.2 on the marginal likelihood). One of the shares is 0, so that misleading past
studies lose their weight, which avoids negative transfer. A prior mean from past predictions follows
Wistuba, Schilling and Schmidt-Thieme, "Scalable Gaussian process-based transfer surrogates", 2018.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

SHARES = (0.0, 0.5, 1.0, 2.0)  # weights of the past studies' prediction; above 1 if the present scale is wider
STRETCHES = (0.5, 1.0, 2.0)  # factors on the length scales
AMPLITUDES = (0.5, 1.0)  # standard deviations of the variation that the past studies do not explain
NOISES = (0.1, 0.4)  # standard deviation of repeated trials of a point, if not measured
OWN_SHARE = 0.5  # standard deviation of the past studies' relative information
LEVEL = 3.0  # standard deviation of the mean level, which ranks do not determine


@dataclass(frozen=True)
class Seen:
    """Points with the predictions of past studies.

    Attributes:
        points: `[points, columns]`, from 0 to 1.
        predicted: Predictions of each past study, about standard normal, `[points, studies]`; no columns without past
            studies.
    """

    points: np.ndarray
    predicted: np.ndarray

    def plus(self, others: "Seen") -> "Seen":
        """Return these points followed by other points."""
        return Seen(np.vstack([self.points, others.points]), np.vstack([self.predicted, others.predicted]))


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """Assumption about the dependence of the present values on past studies.

    Attributes:
        share: Factor on the prediction of the past studies, which gives the prior mean.
        stretch: Factor on the length scales.
        amplitude: Standard deviation of the variation that the past studies do not explain.
        noise: Standard deviation of repeated trials of a point.
    """

    share: float
    stretch: float
    amplitude: float
    noise: float


def hypotheses(studies: int, noises: Sequence[float] = NOISES) -> list[Hypothesis]:
    """Return all combinations of shares, stretches, amplitudes and noises; only share 0 without past studies."""
    shares = SHARES if studies else (0.0,)
    return [
        Hypothesis(share=share, stretch=stretch, amplitude=amplitude, noise=noise)
        for share, stretch, amplitude, noise in itertools.product(shares, STRETCHES, AMPLITUDES, noises)
    ]


def predict_values(
    tried: Seen,
    values: np.ndarray,
    queried: Seen,
    *,
    lengths: np.ndarray,
    nearness: np.ndarray,
    noises: Sequence[float] = NOISES,
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the value at points, each `[points]`, averaged over the hypotheses.

    Args:
        tried: Points of the present trials, possibly none.
        values: Values of the present trials, about standard normal.
        queried: Points whose values are predicted.
        lengths: Length scale of each column, `[columns]`.
        nearness: Similarity of each past study's data, positive, `[studies]`.
        noises: Possible standard deviations of repeated trials of a point.
    """
    weights = nearness / nearness.sum() if len(nearness) else nearness
    found = [
        _under(hypothesis, tried, values, queried, lengths=lengths, weights=weights)
        for hypothesis in hypotheses(len(nearness), noises)
    ]
    evidence = np.array([result[2] for result in found])
    chances = np.exp(evidence - evidence.max())
    chances /= chances.sum()
    means, variances = (np.stack([result[place] for result in found]) for place in (0, 1))
    mean = chances @ means
    return mean, np.sqrt(chances @ (variances + means**2) - mean**2)


def _under(
    hypothesis: Hypothesis, tried: Seen, values: np.ndarray, queried: Seen, *, lengths: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return mean and variance at the points under a hypothesis, and the log marginal likelihood of the values."""

    def covariance(first: Seen, second: Seen) -> np.ndarray:
        scale = lengths * hypothesis.stretch
        one, other = first.points / scale, second.points / scale
        squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :] - 2 * one @ other.T
        far = math.sqrt(5) * np.sqrt(np.maximum(squares, 0.0))
        own = hypothesis.amplitude**2 * ((1 + far + far**2 / 3) * np.exp(-far))  # Matern 5/2 kernel
        linear = (first.predicted * weights) @ second.predicted.T if hypothesis.share else 0.0
        return own + (OWN_SHARE * hypothesis.share) ** 2 * linear + LEVEL**2

    expected = hypothesis.share * (queried.predicted @ weights) if len(weights) else np.zeros(len(queried.points))
    prior = hypothesis.amplitude**2 + LEVEL**2
    if hypothesis.share:
        prior = prior + (OWN_SHARE * hypothesis.share) ** 2 * (queried.predicted**2 @ weights)
    variance = np.full(len(queried.points), 1.0) * prior
    if not len(values):
        return expected, variance, 0.0
    factor = cholesky(covariance(tried, tried) + hypothesis.noise**2 * np.eye(len(values)), lower=True)
    residual = values - (hypothesis.share * (tried.predicted @ weights) if len(weights) else 0.0)
    cross = covariance(queried, tried)
    explained = cho_solve((factor, True), residual)
    shrunk = solve_triangular(factor, cross.T, lower=True)
    likelihood = -0.5 * float(residual @ explained) - float(np.log(np.diag(factor)).sum())
    return expected + cross @ explained, np.maximum(variance - (shrunk**2).sum(axis=0), 1e-9), likelihood
