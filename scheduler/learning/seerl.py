"""Which snapshots of a run form the ensemble (SEERL; Saphal et al., AAMAS 2021): those that err little and differ.

Weights w of the snapshots minimise `w e - balance * w K w` with w >= 0 and sum 1, where e is the error of each and K
how much each two differ, cut off so that extreme difference brings nothing; those with the largest weights are taken.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from scheduler.learned.networks import Weights, probabilities, scores
from scheduler.learning.rollouts import Choice, Episode
from scheduler.learning.torch_networks import Networks, padded

BALANCE = 0.5
CUT = 0.8  # quantile of the differences above which more of it brings nothing


def differences(snapshots: Sequence[Weights], choices: Sequence[Choice]) -> np.ndarray:
    """How much each two differ: the mean symmetric Kullback-Leibler divergence of what they would choose."""
    count = len(snapshots)
    found = np.zeros((count, count))
    for choice in choices:
        shares = [
            np.maximum(probabilities(scores(one, choice.agent, choice.candidates)), 1e-12) for one in snapshots
        ]  # fmt: skip
        for i, j in combinations(range(count), 2):
            logarithm = np.log(shares[i] / shares[j])
            found[i, j] += float((shares[i] - shares[j]) @ logarithm) / 2
    return (found + found.T) / max(len(choices), 1)


def bellman_errors(snapshots: Sequence[Weights], networks: Networks, episodes: Sequence[Episode]) -> np.ndarray:
    """Mean squared error of each snapshot's critic from one choice to the next, over what the episode came to."""
    import torch

    first, errors = networks.agents[0], np.zeros(len(snapshots))
    for number, snapshot in enumerate(snapshots):
        networks.load(snapshot)
        found = []
        for episode in episodes:
            own = [choice for choice in episode.choices if choice.agent == first]
            if len(own) < 2:
                continue
            with torch.no_grad():
                values = networks.values(*padded([choice.candidates for choice in own])).numpy()
            to_go = episode.to_go(np.array([choice.seconds for choice in own])) / max(episode.cost, 1e-9)
            found.append(values - (np.append(to_go[:-1] - to_go[1:], to_go[-1]) + np.append(values[1:], 0.0)))
        errors[number] = float(np.mean(np.concatenate(found) ** 2)) if found else 0.0
    return errors


def value_of(chosen: Sequence[int], errors: np.ndarray, differing: np.ndarray, balance: float = BALANCE) -> float:
    """What is minimised, for some snapshots with equal weights."""
    weights = np.zeros(len(errors))
    weights[list(chosen)] = 1.0 / len(chosen)
    return float(weights @ errors - balance * weights @ differing @ weights)


def normalised(errors: np.ndarray, differing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors and differences on one scale, the differences cut off."""
    pairs = differing[np.triu_indices(len(errors), 1)]
    most = float(np.quantile(pairs, CUT)) if len(pairs) else 0.0
    return errors / max(float(errors.max()), 1e-12), np.minimum(differing, most) / max(most, 1e-12)


def select(errors: np.ndarray, differing: np.ndarray, size: int, balance: float = BALANCE) -> tuple[int, ...]:
    """The snapshots with the largest weights in the quadratic program, in their order.

    The program is not convex: it is solved from the middle and from each snapshot, and the best end counts.

    Args:
        errors: Of each snapshot.
        differing: Of each two.
        size: How many are taken.
        balance: Weight of difference against error.
    """
    from scipy.optimize import minimize

    count = len(errors)
    if count <= size:
        return tuple(range(count))
    starts = [np.full(count, 1 / count), *(0.6 * np.eye(count)[i] + 0.4 / count for i in range(count))]
    # No weight above 1 / size: so many are wanted, and none of them is to decide alone.
    found = [
        minimize(
            lambda w: w @ errors - balance * w @ differing @ w,
            start,
            jac=lambda w: errors - 2 * balance * differing @ w,
            bounds=[(0.0, 1.0 / size)] * count,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(count)},
            method="SLSQP",
        ).x
        for start in starts
    ]
    subsets = {tuple(sorted(np.argsort(-np.round(weights, 6), kind="stable")[:size].tolist())) for weights in found}
    return min(sorted(subsets), key=lambda one: value_of(one, errors, differing, balance))


def enumerated(errors: np.ndarray, differing: np.ndarray, size: int, balance: float = BALANCE) -> tuple[int, ...]:
    """The same by trying every subset: what `select` is checked against."""
    subsets = combinations(range(len(errors)), min(size, len(errors)))
    return min(subsets, key=lambda one: value_of(one, errors, differing, balance))
