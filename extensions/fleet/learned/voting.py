"""Voting of ensemble members: the four classic strategies (Wiering and van Hasselt, 2008).

Each strategy maps the members' probabilities of the candidates, (members, candidates), to the index of the chosen
candidate. Ties go to the first candidate.
"""

from collections.abc import Callable

import numpy as np

FLOOR = 1e-12


def majority(members: np.ndarray) -> int:
    """Return the candidate that is the best of most members; ties go to the larger sum of probabilities."""
    votes = np.bincount(members.argmax(axis=1), minlength=members.shape[1])
    return int(np.argmax(np.where(votes == votes.max(), members.sum(axis=0), -1.0)))


def boltzmann_addition(members: np.ndarray) -> int:
    """Return the candidate with the largest sum of probabilities."""
    return int(np.argmax(members.sum(axis=0)))


def boltzmann_multiplication(members: np.ndarray) -> int:
    """Return the candidate with the largest product of probabilities, so that one member can veto."""
    return int(np.argmax(np.log(np.maximum(members, FLOOR)).sum(axis=0)))


def rank(members: np.ndarray) -> int:
    """Return the candidate with the largest sum of ranks; equal probabilities share a rank."""
    from scipy.stats import rankdata

    return int(np.argmax(rankdata(members, axis=1).sum(axis=0)))


STRATEGIES: dict[str, Callable[[np.ndarray], int]] = {
    "majority": majority,
    "boltzmann-addition": boltzmann_addition,
    "boltzmann-multiplication": boltzmann_multiplication,
    "rank": rank,
}
