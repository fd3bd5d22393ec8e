"""Fit of the weights of an ensemble's members: pure functions of predictions and labels."""

import numpy as np

from shunter.engine.ensemble.calibration import log_losses

# A member below this share hardly changes predictions, but costs as much to serve as any other member.
SMALLEST_WEIGHT = 0.02


def combine(weights: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return the weighted mean of the members' logits: `[rows]`, or `[rows, tasks]`."""
    return weights @ logits if weights.ndim == 1 else np.einsum("mt,mrt->rt", weights, logits)


def task_rows(
    labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray | None, task: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return labels `[rows]`, logits `[members, rows]` and row weights of one task."""
    if labels.ndim == 1:
        return labels, logits, row_weights
    return labels[:, task], logits[:, :, task], None if row_weights is None else row_weights[:, task]


def _fit_tasks(labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray | None, pull: float) -> np.ndarray:
    """Return the weights of each task, `[members]` or `[members, tasks]`; tasks without labels get the main task's."""
    if labels.ndim == 1:
        return fit_weights(labels, logits, row_weights, pull)
    found: list[np.ndarray] = []
    for task in range(labels.shape[1]):
        given = task_rows(labels, logits, row_weights, task)
        found.append(fit_weights(*given, pull) if given[2] is None or given[2].any() else found[0])
    return np.stack(found, axis=1)


def fit_most(
    labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray | None, most: int | None, pull: float = 0.0
) -> np.ndarray:
    """Return the weights of `_fit_tasks` for at most `most` members: those with the largest weights, fitted again."""
    weights = _fit_tasks(labels, logits, row_weights, pull)
    shares = weights.reshape(len(weights), -1).max(axis=1)
    if most is None or np.count_nonzero(shares) <= most:
        return weights
    best = np.sort(np.argsort(-shares, kind="stable")[:most])
    weights = np.zeros_like(weights)
    weights[best] = _fit_tasks(labels, logits[best], row_weights, pull)
    return weights


def halves(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two random halves of the rows, as row numbers, with equal numbers of positives up to one."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return by_label[::2], by_label[1::2]


def fit_weights(
    labels: np.ndarray, logits: np.ndarray, row_weights: np.ndarray | None = None, pull: float = 0.0
) -> np.ndarray:
    """Return weights that minimise the log loss of the weighted mean of logits: none negative, with sum 1.

    The log loss is convex in the weights, so that the solver (SLSQP) finds the one minimum from any start. Weights
    below `SMALLEST_WEIGHT` become 0. With few rows the minimum follows chance. A penalty on the squared distance may
    therefore pull the weights towards equal weights; the more rows there are, the smaller its effect.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: Predicted log odds, `[members, rows]`.
        row_weights: Weight of each row, `[rows]`; None weights all rows alike.
        pull: Penalty, in nats summed over all rows, for a squared distance of 1 from equal weights.

    Returns:
        float64 `[members]`.
    """
    from scipy.optimize import minimize

    labels, logits = labels.astype(np.float64), logits.astype(np.float64)
    shares = None if row_weights is None else row_weights.astype(np.float64) / row_weights.sum(dtype=np.float64)
    members, rows = len(logits), len(labels) if shares is None else 1.0 / float(shares @ shares)

    def loss_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        mixed, away = weights @ logits, weights - 1 / members
        losses = log_losses(labels, mixed)
        errors = np.exp(-np.logaddexp(0.0, -mixed)) - labels
        pulled, slope = pull / rows * float(away @ away), 2 * pull / rows * away
        if shares is None:
            return float(losses.mean()) + pulled, logits @ errors / len(labels) + slope
        return float(shares @ losses) + pulled, logits @ (shares * errors) + slope

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
