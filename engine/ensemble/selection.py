"""Selection of ensemble members with low error and high disagreement, by a quadratic program or greedily.

Weights w of the members minimise `w e - balance * w K w` with w >= 0 and sum 1. e is the error of each member. K is the
disagreement of each pair, clipped so that extreme disagreement adds nothing. The members with the largest weights are
selected (SEERL; Saphal et al., AAMAS 2021). The module does not depend on torch or on the kind of members; it also
selects scheduling policies.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from shunter.engine.ensemble.calibration import log_losses

RowLosses = Callable[[np.ndarray, np.ndarray], np.ndarray]  # arguments: labels and logits, `[rows]`
BALANCE = 0.5  # weight of disagreement against error
CUT = 0.8  # quantile of the pairwise disagreements at which they are clipped
MOST_ENUMERATED = 12
GREEDY_STEPS = 20


def disagreement(logits: np.ndarray) -> np.ndarray:
    """Return the disagreement of each pair of members: mean symmetric Kullback-Leibler divergence of probabilities.

    For two Bernoulli variables it is half the difference of the probabilities times the difference of the log odds.

    Args:
        logits: Predicted log odds, `[members, rows]`.

    Returns:
        float64 `[members, members]`, symmetric, 0 on the diagonal.
    """
    odds = logits.astype(np.float64)
    shares = np.exp(-np.logaddexp(0.0, -odds))
    found = np.zeros((len(odds), len(odds)))
    for i, j in combinations(range(len(odds)), 2):
        found[i, j] = found[j, i] = float((shares[i] - shares[j]) @ (odds[i] - odds[j])) / (2 * odds.shape[1])
    return found


def value_of(chosen: Sequence[int], errors: np.ndarray, differing: np.ndarray) -> float:
    """Return the objective of the quadratic program for the `chosen` members with equal weights; lower is better."""
    weights = np.zeros(len(errors))
    weights[list(chosen)] = 1.0 / len(chosen)
    return float(weights @ errors - BALANCE * weights @ differing @ weights)


def normalised(errors: np.ndarray, differing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale errors and disagreements to a largest value of 1, after the largest disagreements are clipped."""
    pairs = differing[np.triu_indices(len(errors), 1)]
    most = float(np.quantile(pairs, CUT)) if len(pairs) else 0.0
    return errors / max(float(errors.max()), 1e-12), np.minimum(differing, most) / max(most, 1e-12)


def select(errors: np.ndarray, differing: np.ndarray, size: int) -> tuple[int, ...]:
    """Return the members with the largest weights in the quadratic program, in their order.

    The program is not convex: it is solved from the middle and from each member, and the best result counts. The
    ensemble has equal weights instead of the solved weights, which worsens the objective. Members are therefore
    exchanged as long as this improves the objective.

    Args:
        errors: Error of each member, `[members]`.
        differing: Disagreement of each pair, `[members, members]`.
        size: Number of members to select.
    """
    from scipy.optimize import minimize

    count = len(errors)
    if count <= size:
        return tuple(range(count))
    starts = [np.full(count, 1 / count), *(0.6 * np.eye(count)[i] + 0.4 / count for i in range(count))]
    # No weight above 1 / size, so that at least `size` members have a weight and none decides alone.
    found = [
        minimize(
            lambda w: w @ errors - BALANCE * w @ differing @ w,
            start,
            jac=lambda w: errors - 2 * BALANCE * differing @ w,
            bounds=[(0.0, 1.0 / size)] * count,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(count)},
            method="SLSQP",
        ).x
        for start in starts
    ]
    subsets = {tuple(sorted(np.argsort(-np.round(weights, 6), kind="stable")[:size].tolist())) for weights in found}
    exchanged = {_exchanged(subset, errors, differing) for subset in subsets}
    return min(sorted(exchanged), key=lambda one: value_of(one, errors, differing))


def _exchanged(subset: tuple[int, ...], errors: np.ndarray, differing: np.ndarray) -> tuple[int, ...]:
    """Improve a subset: exchange one of its members for another, the best exchange first, until none improves it."""
    best = value_of(subset, errors, differing)
    while True:
        others = [one for one in range(len(errors)) if one not in subset]
        exchanges = [tuple(sorted({*subset, new} - {old})) for old in subset for new in others]
        values = [value_of(one, errors, differing) for one in exchanges]
        position = int(np.argmin(values))
        if values[position] >= best - 1e-12:
            return subset
        subset, best = exchanges[position], values[position]


def enumerated(errors: np.ndarray, differing: np.ndarray, size: int) -> tuple[int, ...]:
    """Return the best subset of `size` members by trying every subset: exact, but slow for many members."""
    subsets = combinations(range(len(errors)), min(size, len(errors)))
    return min(subsets, key=lambda one: value_of(one, errors, differing))


def greedy(
    labels: np.ndarray,
    logits: np.ndarray,
    row_weights: np.ndarray | None,
    most: int | None,
    losses_of: RowLosses = log_losses,
) -> np.ndarray:
    """Return weights from greedy forward selection, which adds the member that lowers the loss of the mean most.

    Members are added with replacement (Caruana et al., "Ensemble Selection from Libraries of Models", ICML 2004), so
    that a weight counts how often a member was added. The selection ends when no addition lowers the loss.

    Args:
        labels: 0 or 1, `[rows]`.
        logits: Predicted log odds, `[members, rows]`.
        row_weights: Weight of each row, `[rows]`; None weights all rows alike.
        most: Largest number of distinct members; None is no limit.
        losses_of: Loss of each row from labels and the mean of logits; by default the log loss.

    Returns:
        float64 `[members]`, with sum 1.
    """
    odds, labels = logits.astype(np.float64), labels.astype(np.float64)
    shares = np.full(len(labels), 1 / len(labels)) if row_weights is None else row_weights / row_weights.sum()
    counts, total, best = np.zeros(len(odds)), np.zeros(len(labels)), np.inf
    for taken in range(1, GREEDY_STEPS + 1):
        allowed = np.arange(len(odds)) if most is None or np.count_nonzero(counts) < most else np.flatnonzero(counts)
        means = [(total + odds[one]) / taken for one in allowed]
        losses = [float(shares @ losses_of(labels, mean)) for mean in means]
        position = int(np.argmin(losses))
        if losses[position] >= best:
            break
        best, chosen = losses[position], int(allowed[position])
        counts[chosen] += 1
        total += odds[chosen]
    return counts / counts.sum()


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
