"""Networks that score candidates from their own features and from the mean over all candidates, and their votes.

    candidates [C, F] -> tanh -> [C, H], with their mean appended to each -> tanh -> [C, H] -> a score for each

They are trained in torch (`shunter.extensions.fleet.learning.trainer.Networks`), with the same formula. The members of
an ensemble vote by one of the four classic strategies (Wiering and van Hasselt, 2008). Each strategy maps the members'
probabilities of the candidates, (members, candidates), to the index of the chosen candidate. Ties go to the first one.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

Weights = dict[str, np.ndarray]
"""Tensors of one network by name: w1, b1, w2, b2, v; or those of all networks of a member, as `placement.w1`."""

CRITIC = "critic"


def scores(weights: Weights, agent: str, candidates: np.ndarray) -> np.ndarray:
    """Return the score of each candidate by an agent's network, from the features, (candidates, features)."""
    hidden = np.tanh(candidates @ weights[f"{agent}.w1"] + weights[f"{agent}.b1"])
    split = hidden.shape[1]
    second = weights[f"{agent}.w2"]
    shared = hidden.mean(axis=0) @ second[split:] + weights[f"{agent}.b2"]
    hidden = np.tanh(hidden @ second[:split] + shared)
    return hidden @ weights[f"{agent}.v"]


def probabilities(values: np.ndarray) -> np.ndarray:
    """Return the softmax of scores."""
    powers = np.exp((values - values.max()).astype(float))
    return powers / powers.sum()


def draw_weights(agents: dict[str, int], hidden: int, seed: int) -> Weights:
    """Draw the initial weights of all networks, given the number of features by agent and the width of the layers."""
    draw = np.random.default_rng(seed)
    weights: Weights = {}
    for agent, features in agents.items():
        weights[f"{agent}.w1"] = draw.normal(0, features**-0.5, (features, hidden)).astype(np.float32)
        weights[f"{agent}.b1"] = np.zeros(hidden, np.float32)
        weights[f"{agent}.w2"] = draw.normal(0, (2 * hidden) ** -0.5, (2 * hidden, hidden)).astype(np.float32)
        weights[f"{agent}.b2"] = np.zeros(hidden, np.float32)
        weights[f"{agent}.v"] = draw.normal(0, 0.1 * hidden**-0.5, hidden).astype(np.float32)
    return weights


def majority(members: np.ndarray) -> int:
    """Return the candidate that is the best of most members; ties go to the larger sum of probabilities."""
    votes = np.bincount(members.argmax(axis=1), minlength=members.shape[1])
    return int(np.argmax(np.where(votes == votes.max(), members.sum(axis=0), -1.0)))


def boltzmann_addition(members: np.ndarray) -> int:
    """Return the candidate with the largest sum of probabilities."""
    return int(np.argmax(members.sum(axis=0)))


def boltzmann_multiplication(members: np.ndarray) -> int:
    """Return the candidate with the largest product of probabilities, so that one member can veto."""
    return int(np.argmax(np.log(np.maximum(members, 1e-12)).sum(axis=0)))


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


class Chooser(Protocol):
    """Interface through which an agent of the learned policy chooses a candidate, such as the pool of a job."""

    def choose(self, agent: str, candidates: np.ndarray) -> int:
        """Return the index of the chosen candidate.

        Args:
            agent: Name of the agent, whose network scores the candidates.
            candidates: Features of the allowed candidates, (candidates, features); at least two.
        """
        ...


class Voters:
    """Deterministic chooser: the members of an ensemble vote.

    Args:
        members: Networks of the members.
        strategy: Name of a voting strategy, see `STRATEGIES`.
    """

    def __init__(self, members: Sequence[Weights], strategy: str) -> None:
        self._members = members
        self._vote = STRATEGIES[strategy]

    def choose(self, agent: str, candidates: np.ndarray) -> int:
        """Return the index of the chosen candidate."""
        if len(self._members) == 1:
            return int(np.argmax(scores(self._members[0], agent, candidates)))
        found = [probabilities(scores(member, agent, candidates)) for member in self._members]
        return self._vote(np.array(found))
