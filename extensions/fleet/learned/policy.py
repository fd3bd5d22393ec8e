"""Learned scheduling policy: it plans again at every event, on simulated and live clusters."""

from collections.abc import Callable

from shunter.extensions.fleet.board import Board, Policy
from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.learned.networks import Chooser
from shunter.extensions.fleet.learned.objectives import Objective
from shunter.extensions.fleet.learned.planner import AGENTS, Planner
from shunter.extensions.fleet.learned.view import Tables

NAME = "learned"


class Learned:
    """Scheduling policy of three cooperating agents (placement, job size, power cap); see `planner` in this folder.

    Args:
        chooser: Chooser with the networks of the agents.
        objective: Objective of the training.
        check: Function that raises for a cluster that the networks were not trained for.
        told: One sentence on the training data, for the user.
        follows: Policy that decides in place of the networks; None if they decide.

    Attributes:
        agents: Number of features by agent.
        planner: Class that makes the decisions of the agents.
    """

    agents, planner = AGENTS, Planner
    name = NAME
    round_seconds: float | None = None

    def __init__(
        self,
        chooser: Chooser,
        objective: Objective,
        check: Callable[[Cluster], None] | None = None,
        *,
        told: str = "",
        follows: Policy | None = None,
    ) -> None:
        self.told, self._follows = told, follows
        if follows is not None:
            self.round_seconds = follows.round_seconds
        self._chooser, self._check = chooser, check
        self._objective: Objective = objective
        self._planner: Planner | None = None
        self._is_checked = False

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs; return the time of the next decision, None to wait for an event."""
        if not self._is_checked:
            self.check(board.cluster)
        if self._follows is not None:
            return self._follows.decide(board)
        if self._planner is None:
            self._planner = self.planner(self._chooser, Tables(board.cluster), self._objective)
        elif board.cluster is not self._planner.tables.cluster and board.cluster != self._planner.tables.cluster:
            self._planner.tables = Tables(board.cluster)  # other users' share of a live cluster changes
        return self._planner.decide(board)

    def check(self, cluster: Cluster) -> None:
        """Raise if the policy was not trained for a cluster of this shape.

        Raises:
            RequestError: The cluster has another shape.
        """
        self._is_checked = True
        if self._check is not None:
            self._check(cluster)

    @property
    def refused(self) -> set[str]:
        """Names of jobs whose deadline could not be promised."""
        return set() if self._planner is None else self._planner.promises.refused
