"""Choosers of candidates: an ensemble that votes, or one network during learning."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from shunter.extensions.fleet.learned.networks import Weights, probabilities, scores
from shunter.extensions.fleet.learned.voting import STRATEGIES


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
        strategy: Name of a voting strategy of `shunter.extensions.fleet.learned.voting`.
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
