"""The weights of an ensemble, and whether it earns its keep: pure functions of predictions and labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.config import SelectBy
from engine.metrics import Metrics, compute_metrics, compute_task_metrics

# A member below this share changes hardly a prediction but costs as much to serve as any other.
SMALLEST_WEIGHT = 0.02
# What a scale of the log odds must save on rows that did not fit it: a share of the log loss, and standard errors.
LEAST_SAVING, LEAST_ERRORS = 0.005, 2.0
SCALES = (0.05, 5.0)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which is better, the ensemble or its best member, on rows that fitted no weights.

    Attributes:
        weights: float64 `[members]` of the result, summing to one; one of them is 1 when the single is the result. With
            several tasks `[members, tasks]`, one sum for each.
        best_single: index of the best member on all rows.
        ensemble: quality of the weighted mean on the judged rows; None where there is nothing to combine.
        single: quality of the best single on the same rows.
        scale: float64, factor of the result's log odds, 1 where none pays; `[tasks]` with several.
    """

    weights: np.ndarray
    best_single: int
    ensemble: Metrics | None
    single: Metrics | None
    scale: np.ndarray = field(default_factory=lambda: np.array(1.0))

    @property
    def is_ensemble(self) -> bool:
        """Whether more than one member is left in the result."""
        return len(self.chosen) > 1

    @property
    def chosen(self) -> list[int]:
        """Members that are left in the result."""
        return np.flatnonzero(self.weights.reshape(len(self.weights), -1).any(axis=1)).tolist()


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
    """Fit weights on one half of the rows and compare with the best single member on the other half.

    Judging on the rows that fitted the weights would favour the ensemble. The best single is picked on all rows, the
    judged half among them: what that tilts, it tilts towards the simpler model. Of several tasks each has its own
    weights, and the main one decides. What is chosen may be too sure of itself, most where AUC chose its epoch: a
    scale of its log odds, fitted on the one half, is kept where the other half says so. It changes no order.

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
    by: SelectBy = "auc" if select_by == "auc" else "logloss"  # which on the same rows orders as NE does
    members = len(logits)
    main = _task(labels, logits, row_weights, 0)
    best_single = int(np.argmin([compute_metrics(main[0], row, main[2]).loss_by(by) for row in main[1]]))
    alone = np.eye(members)[best_single]
    alone = alone if labels.ndim == 1 else np.repeat(alone[:, np.newaxis], labels.shape[1], axis=1)
    fitted, judged = halves(main[0], seed)
    if not len(judged):
        return Verdict(weights=alone, best_single=best_single, ensemble=None, single=None)
    halved = _Halves(labels, row_weights, fitted, judged)
    if members == 1:
        scale = halved.scale(logits[best_single])
        return Verdict(weights=alone, best_single=best_single, ensemble=None, single=None, scale=scale)
    weights = _fit_most(labels[fitted], logits[:, fitted], None if row_weights is None else row_weights[fitted], most)
    judged_weights = None if row_weights is None else row_weights[judged]
    ensemble, single = (
        compute_task_metrics(tasks, labels[judged], combined, judged_weights)
        for combined in (combine(weights, logits[:, judged]), logits[best_single, judged])
    )
    is_mixed = (weights.reshape(members, -1)[:, 0] > 0).sum() > 1
    is_better = is_mixed and ensemble.loss_by(by) < single.loss_by(by)
    chosen = weights if is_better else alone
    return Verdict(
        weights=chosen,
        best_single=best_single,
        ensemble=ensemble,
        single=single,
        scale=halved.scale(combine(chosen, logits)),
    )


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
        before, after = (_log_losses(labels[judged], factor * logits[judged]) for factor in (1.0, scale))
        shares = counts[judged] / counts[judged].sum()
        saving = shares @ (before - after)
        error = math.sqrt(shares**2 @ (before - after - saving) ** 2)
        return scale if saving > max(LEAST_ERRORS * error, LEAST_SAVING * float(shares @ before)) else 1.0


def _log_losses(labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, logits) - labels * logits


def fit_scale(labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray) -> float:
    """The factor of predicted log odds with the least log loss, within `SCALES`; the loss is convex in it.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: predicted log odds, `[rows]`.
        row_weights: Weight of each row, `[rows]`.
    """
    from scipy.optimize import minimize_scalar

    logits = logits.astype(np.float64)
    found = minimize_scalar(
        lambda scale: float(row_weights @ _log_losses(labels, scale * logits)), bounds=SCALES, method="bounded"
    )
    return float(found.x)  # pyright: ignore[reportAttributeAccessIssue]


def combine(weights: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """The weighted mean of the members' logits: `[rows]`, or `[rows, tasks]`."""
    return weights @ logits if weights.ndim == 1 else np.einsum("mt,mrt->rt", weights, logits)


def _task(
    labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray | None, task: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Labels, logits `[members, rows]` and weights of one task."""
    if labels.ndim == 1:
        return labels, logits, row_weights
    return labels[:, task], logits[:, :, task], None if row_weights is None else row_weights[:, task]


def _fit_tasks(labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray | None) -> np.ndarray:
    """Weights of each task: `[members]`, or `[members, tasks]`; the main one's where no row here has the label."""
    if labels.ndim == 1:
        return fit_weights(labels, logits, row_weights)
    found: list[np.ndarray] = []
    for task in range(labels.shape[1]):
        given = _task(labels, logits, row_weights, task)
        found.append(fit_weights(*given) if given[2] is None or given[2].any() else found[0])
    return np.stack(found, axis=1)


def _fit_most(labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray | None, most: int | None) -> np.ndarray:
    """Weights as `_fit_tasks` finds them, of so many members at most: those with the largest shares, fitted again."""
    weights = _fit_tasks(labels, logits, row_weights)
    shares = weights.reshape(len(weights), -1).max(axis=1)
    if most is None or np.count_nonzero(shares) <= most:
        return weights
    best = np.sort(np.argsort(-shares, kind="stable")[:most])
    weights = np.zeros_like(weights)
    weights[best] = _fit_tasks(labels, logits[best], row_weights)
    return weights


def halves(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two random halves of the rows, as indices, with the same number of positives give or take one."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return by_label[::2], by_label[1::2]


def fit_weights(labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray | None = None) -> np.ndarray:
    """Weights that minimise the log loss of the weighted mean of logits: none negative, their sum one.

    The log loss is convex in the weights, so that the solver (SLSQP) finds the one minimum from any start. Weights
    below `SMALLEST_WEIGHT` become 0.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: predicted log odds, `[members, rows]`.
        row_weights: Weight of each row, `[rows]`; None weighs all alike.

    Returns:
        float64 `[members]`.
    """
    from scipy.optimize import minimize

    labels, logits = labels.astype(np.float64), logits.astype(np.float64)
    shares = None if row_weights is None else row_weights.astype(np.float64) / row_weights.sum(dtype=np.float64)

    def loss_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = weights @ logits
        losses = _log_losses(labels, mixed)
        errors = np.exp(-np.logaddexp(0.0, -mixed)) - labels
        if shares is None:
            return float(losses.mean()), logits @ errors / len(labels)
        return float(shares @ losses), logits @ (shares * errors)

    members = len(logits)
    solution = minimize(
        loss_and_gradient,
        x0=np.full(members, 1 / members),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * members,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-10},
    )
    weights = np.where(solution.x < SMALLEST_WEIGHT, 0.0, solution.x)
    return weights / weights.sum()
