"""Choice between an ensemble and its best member, and of the combination method, from predictions and labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from torch import Tensor

from shunter.engine.config import SelectBy
from shunter.engine.ensemble.calibration import fit_scale, log_losses
from shunter.engine.ensemble.combinations import Rows, TriedCombination, compare_combinations
from shunter.engine.ensemble.result import MemoryFit
from shunter.engine.ensemble.selection import combine, fit_most, greedy, halves, task_rows
from shunter.engine.metrics import Metrics, compute_metrics, compute_task_metrics, row_losses
from shunter.models.combination import Combination
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model
from shunter.models.spec import NumberLabel

# Gain that a scale of the log odds needs on rows that did not fit it: share of the log loss, and standard errors.
LEAST_SAVING, LEAST_ERRORS = 0.005, 2.0
# Penalty in nats on weights at a distance of one from equal weights; the better of these values is taken. Manual
# experiment: the best three of twenty random settings with both baselines, fitted and selected on 2,000 rows. NE of the
# result on 1,000 to 15,000 other rows, first without a penalty and judged on half of the rows, then with the better of
# the two values and judged on all rows: a sample of Criteo .897 .892, two generated logs .910 .906 and .867 .866,
# Frappe .534 .534, MovieLens-1M by attributes .903 .903, with ids .757 .755. With 30 alone Frappe would lose .1 %.
PULLS = (0.0, 30.0)


@dataclass(frozen=True, kw_only=True)
class EnsembleSelection:
    """Ensemble selection: the ensemble or its best member, compared on rows that were not used to fit the weights.

    Attributes:
        weights: float64 `[members]` of the result, with sum 1; a single weight is 1 if the result is a single model.
            With several tasks `[members, tasks]`, with sum 1 for each task.
        best_single: Number of the best member on all rows.
        ensemble: Quality of the ensemble on rows that did not fit its weights. Each half is predicted by the fit on the
            other half; if another way to combine won, only the second half counts. None if there is nothing to combine.
        single: Quality of the best single member on the same rows, selected for each half on the other half.
        scale: float64, factor of the result's log odds, 1 if no scale is worthwhile; `[tasks]` with several tasks.
        combination: Combination that replaces the weighted mean of log odds; None if no other way is better.
        ne: NE of each tried way to combine, by its label; see `shunter.engine.ensemble.combinations`.
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
        """Return True if the result has more than one member."""
        return len(self.chosen) > 1

    @property
    def chosen(self) -> list[int]:
        """Numbers of the members in the result."""
        return np.flatnonzero(self.weights.reshape(len(self.weights), -1).any(axis=1)).tolist()

    def combine(self, logits: np.ndarray) -> np.ndarray:
        """Return the log odds of the result, `[rows]` or `[rows, tasks]`, from the log odds of the members."""
        if self.combination is None:
            return combine(self.weights, logits) * self.scale
        return TriedCombination(weights=self.weights, combination=self.combination).combine(logits)

    def among(self, allowed: Sequence[int], members: int) -> "EnsembleSelection":
        """Convert a selection from the `allowed` members to one from all `members` members; the others get weight 0."""
        weights = np.zeros((members, *self.weights.shape[1:]))
        weights[list(allowed)] = self.weights
        combination = self.combination
        if combination is not None and combination.references:
            of = dict(zip(allowed, combination.references, strict=True))
            every = tuple(of.get(index, combination.references[0]) for index in range(members))
            combination = replace(combination, references=every)
        return replace(self, weights=weights, best_single=allowed[self.best_single], combination=combination)


def select_ensemble(
    labels: np.ndarray,
    logits: np.ndarray,
    seed: int,
    *,
    row_weights: np.ndarray | None = None,
    tasks: Sequence[str] = (),
    select_by: SelectBy = "ne",
    most: int | None = None,
    number: NumberLabel | None = None,
) -> EnsembleSelection:
    """Fit weights on one half of the rows, and compare with the best single member on rows that did not fit them.

    Evaluation on the rows that fitted the weights would favour the ensemble, and evaluation of a single on the rows
    that picked it would favour the single. Each half is therefore predicted by the weights and by the single that are
    best on the other half. The result has the weights of the first half, so that the second half stays unused for later
    steps, or it is the best single on all rows. With several tasks each task has its own weights, and the main task
    decides.

    The result may be overconfident, most if AUC selected its epoch. A scale of its log odds, fitted on one half, is
    used if it lowers the log loss significantly on the other half; it changes no order. If the log loss decides over a
    single task, other ways to weight, combine and calibrate are compared too (`shunter.engine.ensemble.combinations`).

    Args:
        labels: 0 or 1, `[rows]`, or `[rows, tasks]`.
        logits: Predicted log odds, `[members, rows]`, or `[members, rows, tasks]`.
        seed: Seed of the halves, which have the same share of positives.
        row_weights: Weight of each label, like `labels`; None weights all alike.
        tasks: Names of several tasks, the main task first.
        select_by: Figure by which the best single is picked and the ensemble compared; the weights are always fitted by
            log loss.
        most: Largest number of members of the ensemble; None is no limit.
        number: Description of a label that is a number. The weights of the mean output are then selected greedily by
            its loss, and nothing is calibrated.
    """
    from threadpoolctl import threadpool_limits

    by: SelectBy = "auc" if select_by == "auc" else "logloss"  # orders models on the same rows like NE
    main = task_rows(labels, logits, row_weights, 0)
    given = _Given(labels, logits, row_weights, tasks, by, most, _best_single(*main, by, number), number)
    first, second = halves(main[0], seed)
    with threadpool_limits(1):  # the sums are so short that waking threads takes longer
        means = _weighted_means(given, first, second)
        if by == "auc" or labels.ndim > 1 or not len(second) or number is not None:
            return means.by_first
        return _best(given, means, first, second, seed)


@dataclass(frozen=True)
class _Given:
    """Inputs of `select_ensemble`, with the best single member on all rows."""

    labels: np.ndarray
    logits: np.ndarray
    row_weights: np.ndarray | None
    tasks: Sequence[str]
    by: SelectBy
    most: int | None
    best_single: int
    number: NumberLabel | None = None

    def weights_of(self, rows: np.ndarray) -> np.ndarray | None:
        return None if self.row_weights is None else self.row_weights[rows]

    def best_single_of(self, rows: np.ndarray) -> int:
        """Return the number of the best member on the given rows."""
        here = self.labels[rows], self.logits[:, rows], self.weights_of(rows)
        return _best_single(*task_rows(*here, 0), self.by, self.number)

    def fitted(self, rows: np.ndarray, pull: float) -> np.ndarray:
        """Return the weights of the members fitted on the given rows."""
        if self.number is not None:
            losses = partial(row_losses, number=self.number)
            return greedy(self.labels[rows], self.logits[:, rows], self.weights_of(rows), self.most, losses)
        return fit_most(self.labels[rows], self.logits[:, rows], self.weights_of(rows), self.most, pull)

    def metrics(self, logits: np.ndarray) -> Metrics:
        return compute_task_metrics(self.tasks, self.labels, logits, self.row_weights, self.number)


def _best_single(
    labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None, by: SelectBy, number: NumberLabel | None
) -> int:
    """Return the number of the best member, by log odds `[members, rows]` of one task."""
    return int(np.argmin([compute_metrics(labels, row, weights, number).loss_by(by) for row in logits]))


class _Means(NamedTuple):
    """Fit of each half: the weighted mean of log odds, or the best single member if it is no worse."""

    by_first: EnsembleSelection
    by_second: EnsembleSelection
    weights: np.ndarray | None = None  # of the mean fitted on the first half, also if the single member is better


def _weighted_means(given: _Given, first: np.ndarray, second: np.ndarray) -> _Means:
    """Return the weighted mean fitted on each half, with the penalty of `PULLS` that is better on the other half."""
    labels, logits, best_single = given.labels, given.logits, given.best_single
    members = len(logits)
    alone = np.eye(members)[best_single]
    alone = alone if labels.ndim == 1 else np.repeat(alone[:, np.newaxis], labels.shape[1], axis=1)
    single = EnsembleSelection(weights=alone, best_single=best_single, ensemble=None, single=None)
    if not len(second):
        return _Means(single, single)
    halved = [
        _Halves(labels, given.row_weights, *halves, has_odds=given.number is None)
        for halves in ((first, second), (second, first))
    ]
    if members == 1 or given.most == 1:
        by_first, by_second = (replace(single, scale=one.scale(logits[best_single])) for one in halved)
        return _Means(by_first, by_second)
    tried: list[tuple[list[np.ndarray], Metrics]] = []
    for pull in PULLS if given.number is None else PULLS[:1]:
        fits = [given.fitted(half, pull) for half in (first, second)]
        unseen = np.array(logits[best_single], dtype=np.float64)
        for weights, half in zip(fits, (second, first), strict=True):
            unseen[half] = combine(weights, logits[:, half])
        tried.append((fits, given.metrics(unseen)))
    fits, ensemble = min(tried, key=lambda one: one[1].loss_by(given.by))
    # Each half is predicted by the single that is best on the other half, which is selected less often than the best
    # one on all rows: in the manual experiment at `PULLS`, the NE of the result falls by 0 to .0003. AUC cannot compare
    # rows that different members scored, so for it the single is the best one on all rows.
    picked = np.array(logits[best_single], dtype=np.float64)
    if given.by == "logloss":
        for half, other in ((first, second), (second, first)):
            picked[half] = logits[given.best_single_of(other), half]
    by_itself = given.metrics(picked)
    is_mixed = (fits[0].reshape(members, -1)[:, 0] > 0).sum() > 1
    is_better = is_mixed and ensemble.loss_by(given.by) < by_itself.loss_by(given.by)
    evaluated = replace(single, ensemble=ensemble, single=by_itself)
    by_first, by_second = (
        replace(evaluated, weights=weights, scale=one.scale(combine(weights, logits)))
        for weights, one in zip(fits if is_better else [alone, alone], halved, strict=True)
    )
    return _Means(by_first, by_second, fits[0])


def _best(given: _Given, means: _Means, first: np.ndarray, second: np.ndarray, seed: int) -> EnsembleSelection:
    """Return the fit of the first half, or a candidate that is significantly better on rows outside of its fit."""
    selection = means.by_first
    present = np.empty(len(given.labels))
    present[second] = selection.combine(given.logits[:, second])
    present[first] = means.by_second.combine(given.logits[:, first])
    counts = np.ones(len(given.labels)) if given.row_weights is None else given.row_weights.astype(np.float64)
    rows = Rows(labels=given.labels, logits=given.logits, weights=counts)
    halved = [half[counts[half] > 0] for half in (first, second)]
    found = compare_combinations(
        rows, halved[0], halved[1], present, single=given.best_single, seed=seed + 1, most=given.most
    )
    if found is None or found.winner is None:
        return selection if found is None else replace(selection, ne=found.ne)
    winner = found.winner
    better = replace(
        selection, weights=winner.weights, scale=np.array(1.0), combination=winner.combination, ne=found.ne
    )
    if means.weights is None:
        return better
    unseen = given.logits[:, second]
    won = winner.combine(unseen)
    compared = (won, unseen[given.best_single_of(first)]) if better.is_ensemble else (means.weights @ unseen, won)
    ensemble, single = (compute_metrics(given.labels[second], scored, given.weights_of(second)) for scored in compared)
    return replace(better, ensemble=ensemble, single=single)


@dataclass(frozen=True)
class _Halves:
    """Two halves of rows: one to fit a scale of log odds, one to evaluate it; numeric outputs are not scaled."""

    labels: np.ndarray
    row_weights: np.ndarray | None
    fitted: np.ndarray
    evaluated: np.ndarray
    has_odds: bool = True

    def scale(self, logits: np.ndarray) -> np.ndarray:
        """Return the scale of predicted log odds, `[rows]` or `[rows, tasks]`: one number, or one for each task."""
        if not self.has_odds:
            return np.array(1.0)
        if self.labels.ndim == 1:
            return np.array(self._scale(self.labels, logits, self.row_weights))
        tasks = range(self.labels.shape[1])
        weights = self.row_weights
        return np.array(
            [self._scale(self.labels[:, k], logits[:, k], None if weights is None else weights[:, k]) for k in tasks]
        )

    def _scale(self, labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None) -> float:
        counts = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
        fitted, evaluated = self.fitted[counts[self.fitted] > 0], self.evaluated[counts[self.evaluated] > 0]
        if len(evaluated) < 2 or len(np.unique(labels[fitted])) < 2:
            return 1.0
        scale = fit_scale(labels[fitted], logits[fitted], counts[fitted])
        before, after = (log_losses(labels[evaluated], factor * logits[evaluated]) for factor in (1.0, scale))
        shares = counts[evaluated] / counts[evaluated].sum()
        saving = shares @ (before - after)
        error = math.sqrt(shares**2 @ (before - after - saving) ** 2)
        return scale if saving > max(LEAST_ERRORS * error, LEAST_SAVING * float(shares @ before)) else 1.0


def combined_as(selection: EnsembleSelection, models: Sequence[Model]) -> Model | Ensemble:
    """Combine models by an ensemble selection; a single model without calibration is returned unchanged.

    Args:
        selection: Ensemble selection.
        models: Models of `selection.chosen`, in their order.
    """
    chosen, combination = selection.chosen, selection.combination
    if combination is not None and combination.references:  # the reference values of ranks or votes of these members
        combination = replace(combination, references=tuple(combination.references[index] for index in chosen))
    assert len(models) == len(chosen), f"{len(models)} models were given for {len(chosen)} that are chosen"
    is_changed = (selection.scale != 1).any() or combination is not None
    if len(models) == 1 and not is_changed:
        return models[0]
    return Ensemble(models, selection.weights[chosen].tolist(), selection.scale.tolist(), combination)


@dataclass(frozen=True, kw_only=True)
class PackedResult:
    """Result whose members are packed into a memory limit.

    Attributes:
        selection: Weights of all members.
        logits: Log odds on validation, `[members, rows]`; packed members predict with their packed weights.
        tensors: Packed weights of the members in the result, by their number; empty if none is packed.
        fit: Size of the packed ensemble, and its quality with and without the memory limit.
    """

    selection: EnsembleSelection
    logits: np.ndarray
    tensors: Mapping[int, Mapping[str, Tensor]]
    fit: MemoryFit
