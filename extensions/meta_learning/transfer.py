"""Search methods that learn from earlier searches: `Transfer` throughout, `Taught` for the first trials.

`predict_values` predicts the value of points in the present search, from its own trials and the predictions of past
studies. The model is a Gaussian process on the present trials only. Its prior mean is the prediction of the past
studies times a share, and its length scales are those of the past studies times a factor. Share and factor are not
fitted, because with a dozen trials the marginal likelihood has no clear maximum. Instead a few hypotheses are averaged,
weighted by their marginal likelihood on the present trials (Rasmussen and Williams, "Gaussian Processes for Machine
Learning", 2006, sections 2.7 on mean functions and 5.2 on the marginal likelihood). One of the shares is 0, so that
misleading past studies lose their weight, which avoids negative transfer. A prior mean from past predictions follows
Wistuba, Schilling and Schmidt-Thieme, "Scalable Gaussian process-based transfer surrogates", 2018.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from shunter.extensions.meta_learning.points import Domain
from shunter.extensions.meta_learning.portfolio import (
    FEWEST_POINTS,
    MOST_POINTS,
    expected_improvement,
    first_points,
    near,
    portfolio,
    sources_of,
    thinned,
)
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Outcome, Parameters, SearchMethod
from shunter.search.reward import scores
from shunter.search.study.storage import begun_trials

SHARES = (0.0, 0.5, 1.0, 2.0)  # weights of the past studies' prediction; above 1 if the present scale is wider
STRETCHES = (0.5, 1.0, 2.0)  # factors on the length scales
AMPLITUDES = (0.5, 1.0)  # standard deviations of the variation that the past studies do not explain
NOISES = (0.1, 0.4)  # standard deviation of repeated trials of a point, if not measured
OWN_SHARE = 0.5  # standard deviation of the past studies' relative information
LEVEL = 3.0  # standard deviation of the mean level, which ranks do not determine
TAUGHT_TRIALS = 12  # of `Taught`; set by hand; the benchmark covers the first 8
MOST_FAMILIES = 4  # families whose first points are tried, with past studies
OF_PAST = 2  # number of portfolio points; more would cost too much if past studies mislead
NEARBY = 8  # number of first trials that stay near the best points, with past studies
FEWEST_TOLD = 3  # number of own trials before the surrogate is used, without past studies
LENGTH = 1.0  # length scale of each column, without past studies
DRAWN = 512  # number of points sampled from the whole space for each proposal
CHANGED = 32  # number of variations of each of the best points
BEST = 6  # number of own trials, and of points of each past study, that are varied


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


class Transfer:
    """Bayesian optimisation with surrogates of past studies; see `predict_values` and `portfolio`.

    The default comes first, so that no search ends with a worse result. The first points of the other families follow,
    the most promising first. Then points of the portfolio alternate with the method's own proposals. Settings that did
    well on other data are therefore tried even if the surrogate disagrees. The first own proposals vary the best points
    so far and minimise the predicted mean. Later proposals maximise the expected improvement and are also sampled from
    the whole space. After the portfolio only own proposals follow. Running trials count with their predicted values, so
    that parallel trials differ. The only state is the reported outcomes, whose number seeds the random numbers: an
    interrupted search resumes with the same proposals.

    Without past studies the method tries the default points of the space first and learns from its own trials only.
    """

    def __init__(self, context: SearchContext) -> None:
        """Load past studies from the context."""
        self._context = context
        self._domain = Domain.of(context.space)
        self._sources = sources_of(self._domain, context.past, context.cost)
        of_past = portfolio(self._domain, self._sources, OF_PAST)
        own = context.space.defaults()
        # The first point of each family.
        firsts = list({point.get("family"): point for point in reversed(own)}.values())[::-1]
        self._families = firsts if of_past else []
        self._first = of_past or own
        self._lengths = np.full(self._domain.encode([]).shape[1], LENGTH)
        if self._sources:  # geometric mean over the past studies
            lengths = [np.log(source.surrogate.lengths) for source in self._sources]
            self._lengths = np.exp(np.mean(lengths, axis=0))
        measured = [source for source in self._sources if source.noise is not None]
        nearest = min(measured, key=lambda source: source.distance, default=None)
        # Use the noise of a score that was measured on the nearest data, instead of constants.
        self._noises = NOISES if nearest is None or nearest.noise is None else (nearest.noise,)
        self._told: list[tuple[Parameters, Outcome]] = []
        self._under_way: list[Parameters] = []

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return the next point: a first point of a family, a portfolio point, or a proposal; None if none is left."""
        tried = [point for point, _ in self._told] + self._under_way
        point = self._first_of_families(tried)
        if point is None:
            first = next((point for point in self._first if point not in tried), None)
            turn = len(tried) - min(len(self._families), MOST_FAMILIES)  # even: portfolio point, odd: own proposal
            is_own_turn = self._sources and turn % 2 == 1
            point = (self._propose(tried) if is_own_turn else None) or first or self._propose(tried)
        if point is not None:
            self._under_way.append(point)
        return point

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Record the outcome of a trained point."""
        if parameters in self._under_way:
            self._under_way.remove(parameters)
        self._told.append((parameters, outcome))

    def _first_of_families(self, tried: Sequence[Parameters]) -> Parameters | None:
        """Return the default, then the other families' first points by predicted mean; None after all of them.

        Data sets differ more in their best family than in the best settings of a family.
        """
        left = [point for point in self._families if point not in tried]
        if not left or len(self._families) - len(left) >= MOST_FAMILIES:
            return None
        if len(left) == len(self._families) or not self._told:
            return left[0]
        return left[int(np.argmin(self._means(left)))]

    def _propose(self, tried: Sequence[Parameters]) -> Parameters | None:
        random = np.random.default_rng([self._context.seed, len(tried)])
        candidates = [point for point in self._candidates(random, len(tried)) if point not in tried]
        if not candidates:
            return None
        if not self._sources and len(self._told) < FEWEST_TOLD:
            return candidates[-1]  # a random candidate, since nothing is known yet
        if self._sources and self._told and len(tried) < NEARBY:
            return candidates[int(np.argmin(self._means(candidates)))]
        return candidates[int(np.argmax(self._improvement(candidates, list(tried))))]

    def _candidates(self, random: np.random.Generator, tried: int) -> list[Parameters]:
        values = scores([outcome for _, outcome in self._told], self._context.cost) if self._told else np.zeros(0)
        own = [self._told[place][0] for place in np.argsort(values, kind="stable")[:BEST]]
        of_past = [point for source in self._sources for point in source.points[:BEST]]
        changed = [self._domain.change(point, random) for point in own for _ in range(CHANGED)]
        changed += [self._domain.change(point, random) for point in of_past for _ in range(CHANGED // 4)]
        if self._sources and tried < NEARBY:
            return [*self._context.space.defaults(), *of_past, *changed]
        return [*of_past, *changed, *self._domain.draw(DRAWN, random)]

    def _means(self, candidates: list[Parameters]) -> np.ndarray:
        """Return the predicted mean of each candidate after the trials so far."""
        values = scores([outcome for _, outcome in self._told], self._context.cost)
        return self._belief(self._seen([point for point, _ in self._told]), values, self._seen(candidates))[0]

    def _improvement(self, candidates: list[Parameters], tried: list[Parameters]) -> np.ndarray:
        """Return the expected improvement of each candidate on the lowest predicted mean of the tried points."""
        values = scores([outcome for _, outcome in self._told], self._context.cost)
        learned = thinned(np.argsort(values, kind="stable"), MOST_POINTS)
        trained, values = self._seen([self._told[place][0] for place in learned]), values[learned]
        for point in self._under_way:  # each with its predicted value
            pending = self._seen([point])
            mean, _ = self._belief(trained, values, pending)
            trained, values = trained.plus(pending), np.append(values, mean)
        mean, deviation = self._belief(trained, values, self._seen(candidates))
        lowest = self._belief(trained, values, self._seen(tried))[0].min()
        return expected_improvement(mean, deviation, float(lowest))

    def _belief(self, tried: Seen, values: np.ndarray, queried: Seen) -> tuple[np.ndarray, np.ndarray]:
        nearness = np.array([source.nearness for source in self._sources])
        return predict_values(tried, values, queried, lengths=self._lengths, nearness=nearness, noises=self._noises)

    def _seen(self, points: list[Parameters]) -> Seen:
        encoded = self._domain.encode(points)
        predicted = [source.surrogate.predict(encoded) for source in self._sources]
        return Seen(encoded, np.array(predicted).reshape(len(self._sources), len(points)).T)


class Taught:
    """Search method that starts like `Transfer` and continues with another method.

    Args:
        context: Context of the search, with past studies.
        then: Method that continues, based on the study of the context.
    """

    def __init__(self, context: SearchContext, then: SearchMethod) -> None:
        self._study, self._first, self._then = context.study, Transfer(context), then

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return the next point: of `Transfer` for the first trials, then of the continuing method."""
        is_taught = len(begun_trials(self._study)) < TAUGHT_TRIALS
        return (self._first.ask(left) if is_taught else None) or self._then.ask(left)

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Report the outcome of a point to both methods."""
        self._first.tell(parameters, outcome)
        self._then.tell(parameters, outcome)


def is_taught(context: SearchContext) -> bool:
    """Return True if past studies have points in this space, but no study is similar enough to try its best points."""
    if not context.past or near(context.past):
        return False
    domain, points = Domain.of(context.space), {}
    for study in context.past:
        told = sum(domain.translate(parameters) is not None for parameters, _ in study.trials)
        points[study.name] = points.get(study.name, 0) + told
    return any(count >= FEWEST_POINTS for count in points.values())


def taught_start(context: SearchContext, go_on: Callable[[Sequence[Parameters]], SearchMethod]) -> SearchMethod | None:
    """Return a method that starts with points of past studies; None if they have no points in this space.

    Args:
        context: Context of the search, with past studies.
        go_on: Function that builds the continuing method, given the first points.
    """
    if is_taught(context):
        return Taught(context, go_on(()))
    nearest = near(context.past)
    return go_on(first_points(context.space, nearest, context.cost)) if nearest else None
