"""What is believed of points of the present search, after its own trials and what past studies predict of them.

A Gaussian process on the present trials alone, whose mean begins at the past's predictions times a share, and whose
columns matter as much as they did in the past. How large the share is, and how fast values change, is not fitted: with
a dozen trials the marginal likelihood has no clear maximum, so a few hypotheses are averaged, each counting by how well
it explains the present trials (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, sections 2.7 on
mean functions and 5.2 on the marginal likelihood). The share 0 is among them: a past that misleads loses its weight as
fast as the trials show it, which is the guard against negative transfer. A past whose predictions stand in for a mean
is that of Wistuba, Schilling and Schmidt-Thieme, "Scalable Gaussian process-based transfer surrogates", 2018.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

SHARES = (0.0, 0.5, 1.0, 2.0)  # of the past's prediction in the value; the present scale may be wider than the past's
STRETCHES = (0.5, 1.0, 2.0)  # of the length scales
AMPLITUDES = (0.5, 1.0)  # standard deviation of what the past does not explain
NOISES = (0.1, 0.4)  # standard deviation of a trial from the next of the same point, where nobody has measured it
OWN_SHARE = 0.5  # standard deviation of how much more one past study tells than the others
LEVEL = 3.0  # standard deviation of the level, which ranks within the present trials leave open


@dataclass(frozen=True)
class Seen:
    """Points with what the past predicts of them.

    Attributes:
        points: `[points, columns]`, from 0 to 1.
        predicted: Predictions by each past study, about standard normal, `[points, studies]`; no column without a past.
    """

    points: np.ndarray
    predicted: np.ndarray

    def plus(self, others: "Seen") -> "Seen":
        """These points and others."""
        return Seen(np.vstack([self.points, others.points]), np.vstack([self.predicted, others.predicted]))


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One way in which the present could depend on the past."""

    share: float
    stretch: float
    amplitude: float
    noise: float


def hypotheses(studies: int, noises: Sequence[float] = NOISES) -> list[Hypothesis]:
    """All combinations; without a past, those without a share in it."""
    shares = SHARES if studies else (0.0,)
    return [
        Hypothesis(share=share, stretch=stretch, amplitude=amplitude, noise=noise)
        for share, stretch, amplitude, noise in itertools.product(shares, STRETCHES, AMPLITUDES, noises)
    ]


def believe(
    told: Seen,
    values: np.ndarray,
    asked: Seen,
    *,
    lengths: np.ndarray,
    nearness: np.ndarray,
    noises: Sequence[float] = NOISES,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the value at points, each `[points]`, averaged over the hypotheses.

    Args:
        told: Present trials; may be none.
        values: Values at these points, about standard normal.
        asked: Points at which the value is asked for.
        lengths: Length scale of each column, `[columns]`.
        nearness: Nearness of each past study, positive, `[studies]`.
        noises: Standard deviations that a trial may have from the next of the same point.
    """
    weights = nearness / nearness.sum() if len(nearness) else nearness
    found = [
        _under(hypothesis, told, values, asked, lengths=lengths, weights=weights)
        for hypothesis in hypotheses(len(nearness), noises)
    ]
    evidence = np.array([result[2] for result in found])
    chances = np.exp(evidence - evidence.max())
    chances /= chances.sum()
    means, variances = (np.stack([result[place] for result in found]) for place in (0, 1))
    mean = chances @ means
    return mean, np.sqrt(chances @ (variances + means**2) - mean**2)


def _under(
    hypothesis: Hypothesis, told: Seen, values: np.ndarray, asked: Seen, *, lengths: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and variance at the points, and the logarithm of the marginal likelihood of the values."""

    def covariance(first: Seen, second: Seen) -> np.ndarray:
        scale = lengths * hypothesis.stretch
        own = hypothesis.amplitude**2 * _matern(first.points / scale, second.points / scale)
        linear = (first.predicted * weights) @ second.predicted.T if hypothesis.share else 0.0
        return own + (OWN_SHARE * hypothesis.share) ** 2 * linear + LEVEL**2

    expected = hypothesis.share * (asked.predicted @ weights) if len(weights) else np.zeros(len(asked.points))
    prior = hypothesis.amplitude**2 + LEVEL**2
    if hypothesis.share:
        prior = prior + (OWN_SHARE * hypothesis.share) ** 2 * (asked.predicted**2 @ weights)
    variance = np.full(len(asked.points), 1.0) * prior
    if not len(values):
        return expected, variance, 0.0
    factor = cholesky(covariance(told, told) + hypothesis.noise**2 * np.eye(len(values)), lower=True)
    residual = values - (hypothesis.share * (told.predicted @ weights) if len(weights) else 0.0)
    cross = covariance(asked, told)
    explained = cho_solve((factor, True), residual)
    shrunk = solve_triangular(factor, cross.T, lower=True)
    likelihood = -0.5 * float(residual @ explained) - float(np.log(np.diag(factor)).sum())
    return expected + cross @ explained, np.maximum(variance - (shrunk**2).sum(axis=0), 1e-9), likelihood


def _matern(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Matern 5/2 of two sets of scaled points, `[first, second]`."""
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1)[None, :] - 2 * first @ second.T
    far = math.sqrt(5) * np.sqrt(np.maximum(squares, 0.0))
    return (1 + far + far**2 / 3) * np.exp(-far)
