"""Who chooses among candidates: the members of an ensemble by vote, or one while it learns."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from shunter.extensions.fleet.learned.networks import Weights, probabilities, scores
from shunter.extensions.fleet.learned.voting import STRATEGIES


class Chooser(Protocol):
    """Chooses one of some candidates."""

    def choose(self, agent: str, candidates: np.ndarray) -> int:
        """Index of the one that is chosen.

        Args:
            agent: Whose choice it is.
            candidates: Features of those that may be chosen, (candidates, features); two at least.
        """
        ...


class Voters:
    """The members of an ensemble; they always choose alike.

    Args:
        members: Their networks.
        strategy: One of `shunter.extensions.fleet.learned.voting`.
    """

    def __init__(self, members: Sequence[Weights], strategy: str) -> None:
        self._members = members
        self._vote = STRATEGIES[strategy]

    def choose(self, agent: str, candidates: np.ndarray) -> int:
        """See `Chooser.choose`."""
        if len(self._members) == 1:
            return int(np.argmax(scores(self._members[0], agent, candidates)))
        found = [probabilities(scores(member, agent, candidates)) for member in self._members]
        return self._vote(np.array(found))
