"""The weights of an ensemble, and whether it earns its keep: pure functions of predictions and labels."""

from dataclasses import dataclass

import numpy as np

from engine.metrics import Metrics, compute_metrics

# A member below this share changes hardly a prediction but costs as much to serve as any other.
SMALLEST_WEIGHT = 0.02


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which is better, the ensemble or its best member, on rows that fitted no weights.

    Attributes:
        weights: float64 `[members]` of the result, summing to one; one of them is 1 when the single is the result.
        best_single: index of the member with the lowest NE on all rows.
        ensemble: quality of the weighted mean on the judged rows; None where there is nothing to combine.
        single: quality of the best single on the same rows.
    """

    weights: np.ndarray
    best_single: int
    ensemble: Metrics | None
    single: Metrics | None

    @property
    def is_ensemble(self) -> bool:
        """Whether more than one member is left in the result."""
        return int((self.weights > 0).sum()) > 1


def judge(labels: np.ndarray, logits: np.ndarray, seed: int) -> Verdict:
    """Fit weights on one half of the rows and compare with the best single member on the other half.

    Judging on the rows that fitted the weights would favour the ensemble. The best single is picked on all rows, the
    judged half among them: what that tilts, it tilts towards the simpler model.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: predicted log odds, `[members, rows]`.
        seed: of the halves, which hold the same share of positives.
    """
    members = len(logits)
    best_single = int(np.argmin([compute_metrics(labels, row).logloss for row in logits]))
    alone = np.eye(members)[best_single]
    fitted, judged = halves(labels, seed)
    if members == 1 or not len(judged):
        return Verdict(weights=alone, best_single=best_single, ensemble=None, single=None)
    weights = fit_weights(labels[fitted], logits[:, fitted])
    ensemble = compute_metrics(labels[judged], weights @ logits[:, judged])
    single = compute_metrics(labels[judged], logits[best_single, judged])
    is_better = (weights > 0).sum() > 1 and ensemble.logloss < single.logloss
    return Verdict(weights=weights if is_better else alone, best_single=best_single, ensemble=ensemble, single=single)


def halves(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two random halves of the rows, as indices, with the same number of positives give or take one."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return by_label[::2], by_label[1::2]


def fit_weights(labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Weights that minimise the log loss of the weighted mean of logits: none negative, their sum one.

    The log loss is convex in the weights, so that the solver (SLSQP) finds the one minimum from any start. Weights
    below `SMALLEST_WEIGHT` become 0.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: predicted log odds, `[members, rows]`.

    Returns:
        float64 `[members]`.
    """
    from scipy.optimize import minimize

    labels, logits = labels.astype(np.float64), logits.astype(np.float64)

    def loss_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = weights @ logits
        loss = (np.logaddexp(0.0, mixed) - labels * mixed).mean()
        probabilities = np.exp(-np.logaddexp(0.0, -mixed))
        return float(loss), logits @ (probabilities - labels) / len(labels)

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
