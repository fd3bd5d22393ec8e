"""Whether an ensemble earns its keep, and how its members are combined: pure functions of predictions and labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from shunter.engine.config import SelectBy
from shunter.engine.ensemble.calibration import fit_scale, log_losses
from shunter.engine.ensemble.race import Entrant, Rows, race
from shunter.engine.ensemble.weights import combine, fit_most, halves, task_rows
from shunter.engine.metrics import Metrics, compute_metrics, compute_task_metrics
from shunter.models.combination import Combination

# What a scale of the log odds must save on rows that did not fit it: a share of the log loss, and standard errors.
LEAST_SAVING, LEAST_ERRORS = 0.005, 2.0
# Nats by which weights at a distance of one from equal ones must be better on the rows that fit them; the better of
# these is taken. By hand, the best three of twenty random settings with both baselines, fitted and chosen on 2,000
# rows, NE of what was kept on 1,000 to 15,000 others, first without a pull and judged on half of the rows, then with
# the better of the two and judged on all: a sample of Criteo .897 .892, two generated logs .910 .906 and .867 .866,
# Frappe .534 .534, MovieLens-1M by attributes .903 .903, with ids .757 .755. With 30 alone Frappe would lose .1 %.
PULLS = (0.0, 30.0)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which is better, the ensemble or its best member, on rows that did not fit its weights.

    Attributes:
        weights: float64 `[members]` of the result, summing to one; one of them is 1 when the single is the result. With
            several tasks `[members, tasks]`, one sum for each.
        best_single: index of the best member on all rows.
        ensemble: quality of the ensemble on rows that did not fit it: each half by what the other fits, or where
            another way to combine has won, the second half alone; None where there is nothing to combine.
        single: quality of the best single on the same rows, picked for them as the ensemble's weights are fitted.
        scale: float64, factor of the result's log odds, 1 where none pays; `[tasks]` with several.
        combination: Another way than the weighted mean of log odds, which is taken; None where none is better.
        ne: NE of each way to combine that was tried, by its label; see `shunter.engine.ensemble.race`.
    """

    weights: np.ndarray
    best_single: int
    ensemble: Metrics | None
    single: Metrics | None
    scale: np.ndarray = field(default_factory=lambda: np.array(1.0))
    combination: Combination | None = None
    ne: dict[str, float] = field(default_factory=dict)

    @property
    def is_ensemble(self) -> bool:
        """Whether more than one member is left in the result."""
        return len(self.chosen) > 1

    @property
    def chosen(self) -> list[int]:
        """Members that are left in the result."""
        return np.flatnonzero(self.weights.reshape(len(self.weights), -1).any(axis=1)).tolist()

    def combine(self, logits: np.ndarray) -> np.ndarray:
        """The log odds of the result, `[rows]` or `[rows, tasks]`, of those of the members."""
        if self.combination is None:
            return combine(self.weights, logits) * self.scale
        return Entrant(weights=self.weights, combination=self.combination).combine(logits)

    def among(self, allowed: Sequence[int], members: int) -> "Verdict":
        """The same among more members, of which only some were judged: the others have no weight."""
        weights = np.zeros((members, *self.weights.shape[1:]))
        weights[list(allowed)] = self.weights
        combination = self.combination
        if combination is not None and combination.references:
            of = dict(zip(allowed, combination.references, strict=True))
            every = tuple(of.get(index, combination.references[0]) for index in range(members))
            combination = replace(combination, references=every)
        return replace(self, weights=weights, best_single=allowed[self.best_single], combination=combination)


def judge(
    labels: np.ndarray,
    logits: np.ndarray,
    seed: int,
    *,
    row_weights: np.ndarray | None = None,
    tasks: Sequence[str] = (),
    select_by: SelectBy = "ne",
    most: int | None = None,
) -> Verdict:
    """Fit weights on one half of the rows, and compare with the best single member on rows that did not fit them.

    Judging on the rows that fitted the weights would favour the ensemble, and judging a single on the rows that picked
    it the single, so each half is predicted by the weights and by the single that the other half finds best. What is
    taken are the weights of the first half, which leaves the second for all that follows, or the best single of all
    rows. Of several tasks each has its own weights, and the main one decides. What is chosen may be too sure of itself,
    most where AUC chose its epoch: a scale of its log odds, fitted on the one half, is kept where the other half says
    so. It changes no order. Where the log loss decides over a single task, other ways to weigh, combine and calibrate
    compete with that (`shunter.engine.ensemble.race`).

    Args:
        labels: 0 or 1, `[rows]`, or `[rows, tasks]`.
        logits: predicted log odds, `[members, rows]`, or `[members, rows, tasks]`.
        seed: Seed of the halves, which hold the same share of positives.
        row_weights: Weight of each label, like `labels`; None weighs all alike.
        tasks: names of several tasks, the main one first.
        select_by: figure by which the best single is picked and the ensemble judged; the weights are fitted by log loss
            whichever it is.
        most: Members of the ensemble at most; None sets no bound.
    """
    from threadpoolctl import threadpool_limits

    by: SelectBy = "auc" if select_by == "auc" else "logloss"  # which on the same rows orders as NE does
    main = task_rows(labels, logits, row_weights, 0)
    given = _Given(labels, logits, row_weights, tasks, by, most, _best_single(*main, by))
    first, second = halves(main[0], seed)
    with threadpool_limits(1):  # of sums as short as these, threads take longer to wake than to add
        means = _weighted_means(given, first, second)
        if by == "auc" or labels.ndim > 1 or not len(second):
            return means.by_first
        return _best(given, means, first, second, seed)


@dataclass(frozen=True)
class _Given:
    """What is judged: see `judge`."""

    labels: np.ndarray
    logits: np.ndarray
    row_weights: np.ndarray | None
    tasks: Sequence[str]
    by: SelectBy
    most: int | None
    best_single: int

    def weights_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Weights of some rows."""
        return None if self.row_weights is None else self.row_weights[rows]

    def best_single_of(self, rows: np.ndarray) -> int:
        """The member that is best on some rows."""
        here = self.labels[rows], self.logits[:, rows], self.weights_of(rows)
        return _best_single(*task_rows(*here, 0), self.by)

    def fitted(self, rows: np.ndarray, pull: float) -> np.ndarray:
        """The weights of the members that some rows fit."""
        return fit_most(self.labels[rows], self.logits[:, rows], self.weights_of(rows), self.most, pull)

    def metrics(self, logits: np.ndarray) -> Metrics:
        """The quality of some predictions of all rows."""
        return compute_task_metrics(self.tasks, self.labels, logits, self.row_weights)


def _best_single(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None, by: SelectBy) -> int:
    """The best member, by log odds `[members, rows]` of one task."""
    return int(np.argmin([compute_metrics(labels, row, weights).loss_by(by) for row in logits]))


class _Means(NamedTuple):
    """The weighted mean of log odds, or the best single where that is no worse, as either half fits it.

    Attributes:
        by_first: As the first half does.
        by_second: As the second one does.
        weights: Those of the mean that the first half fits, whichever is better; None where nothing is combined.
    """

    by_first: Verdict
    by_second: Verdict
    weights: np.ndarray | None = None


def _weighted_means(given: _Given, first: np.ndarray, second: np.ndarray) -> _Means:
    """What each half fits, with the pull that is better on the rows that the other half has."""
    labels, logits, best_single = given.labels, given.logits, given.best_single
    members = len(logits)
    alone = np.eye(members)[best_single]
    alone = alone if labels.ndim == 1 else np.repeat(alone[:, np.newaxis], labels.shape[1], axis=1)
    single = Verdict(weights=alone, best_single=best_single, ensemble=None, single=None)
    if not len(second):
        return _Means(single, single)
    halved = _Halves(labels, given.row_weights, first, second), _Halves(labels, given.row_weights, second, first)
    if members == 1 or given.most == 1:
        by_first, by_second = (replace(single, scale=one.scale(logits[best_single])) for one in halved)
        return _Means(by_first, by_second)
    tried: list[tuple[list[np.ndarray], Metrics]] = []
    for pull in PULLS:
        fits = [given.fitted(half, pull) for half in (first, second)]
        unseen = np.array(logits[best_single], dtype=np.float64)
        for weights, half in zip(fits, (second, first), strict=True):
            unseen[half] = combine(weights, logits[:, half])
        tried.append((fits, given.metrics(unseen)))
    fits, ensemble = min(tried, key=lambda one: one[1].loss_by(given.by))
    by_itself = given.metrics(_picked(given, first, second))
    is_mixed = (fits[0].reshape(members, -1)[:, 0] > 0).sum() > 1
    is_better = is_mixed and ensemble.loss_by(given.by) < by_itself.loss_by(given.by)
    judged = replace(single, ensemble=ensemble, single=by_itself)
    by_first, by_second = (
        replace(judged, weights=weights, scale=one.scale(combine(weights, logits)))
        for weights, one in zip(fits if is_better else [alone, alone], halved, strict=True)
    )
    return _Means(by_first, by_second, fits[0])


def _picked(given: _Given, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Log odds of the single that the other half finds best, `[rows]` or `[rows, tasks]`.

    Where the area under the curve decides it is the best one of all rows: two members have no common order. Picked so,
    the single is kept less often; by hand, as at `PULLS`, the NE of what is kept falls by 0 to .0003.
    """
    picked = np.array(given.logits[given.best_single], dtype=np.float64)
    if given.by == "logloss":
        for half, other in ((first, second), (second, first)):
            picked[half] = given.logits[given.best_single_of(other), half]
    return picked


def _best(given: _Given, means: _Means, first: np.ndarray, second: np.ndarray, seed: int) -> Verdict:
    """What the first half fits, or what beats it beyond chance on rows that fitted nothing of it."""
    verdict = means.by_first
    present = np.empty(len(given.labels))
    present[second] = verdict.combine(given.logits[:, second])
    present[first] = means.by_second.combine(given.logits[:, first])
    counts = np.ones(len(given.labels)) if given.row_weights is None else given.row_weights.astype(np.float64)
    rows = Rows(labels=given.labels, logits=given.logits, weights=counts)
    halved = [half[counts[half] > 0] for half in (first, second)]
    found = race(rows, halved[0], halved[1], present, single=given.best_single, seed=seed + 1, most=given.most)
    if found is None or found.winner is None:
        return verdict if found is None else replace(verdict, ne=found.ne)
    winner = found.winner
    better = replace(verdict, weights=winner.weights, scale=np.array(1.0), combination=winner.combination, ne=found.ne)
    if means.weights is None:
        return better
    unseen = given.logits[:, second]
    won = winner.combine(unseen)
    compared = (won, unseen[given.best_single_of(first)]) if better.is_ensemble else (means.weights @ unseen, won)
    ensemble, single = (compute_metrics(given.labels[second], scored, given.weights_of(second)) for scored in compared)
    return replace(better, ensemble=ensemble, single=single)


@dataclass(frozen=True)
class _Halves:
    """Rows of which one half fits a scale of log odds and the other one judges it."""

    labels: np.ndarray
    row_weights: np.ndarray | None
    fitted: np.ndarray
    judged: np.ndarray

    def scale(self, logits: np.ndarray) -> np.ndarray:
        """The scale of predicted log odds, `[rows]` or `[rows, tasks]`: one number, or one for each task."""
        if self.labels.ndim == 1:
            return np.array(self._scale(self.labels, logits, self.row_weights))
        tasks = range(self.labels.shape[1])
        weights = self.row_weights
        return np.array(
            [self._scale(self.labels[:, k], logits[:, k], None if weights is None else weights[:, k]) for k in tasks]
        )

    def _scale(self, labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None) -> float:
        counts = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
        fitted, judged = self.fitted[counts[self.fitted] > 0], self.judged[counts[self.judged] > 0]
        if len(judged) < 2 or len(np.unique(labels[fitted])) < 2:
            return 1.0
        scale = fit_scale(labels[fitted], logits[fitted], counts[fitted])
        before, after = (log_losses(labels[judged], factor * logits[judged]) for factor in (1.0, scale))
        shares = counts[judged] / counts[judged].sum()
        saving = shares @ (before - after)
        error = math.sqrt(shares**2 @ (before - after - saving) ** 2)
        return scale if saving > max(LEAST_ERRORS * error, LEAST_SAVING * float(shares @ before)) else 1.0
