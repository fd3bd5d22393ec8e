"""The learned policy in its role: asked at every event, it plans anew, whether the board is simulated or real."""

from collections.abc import Callable

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.learned.choosers import Chooser
from shunter.extensions.fleet.learned.objectives import Objective
from shunter.extensions.fleet.learned.planner import Planner
from shunter.extensions.fleet.learned.view import Tables

NAME = "learned"


class Learned:
    """Three cooperating agents decide.

    Args:
        chooser: Their networks.
        objective: What they were trained for.
        check: Refuses a cluster that they were not trained on.
        joint: Whether one agent decides all at once, as a rival.
        told: In one sentence what they were trained on.
    """

    name = NAME
    round_seconds: float | None = None

    def __init__(
        self,
        chooser: Chooser,
        objective: Objective,
        check: Callable[[Cluster], None] | None = None,
        *,
        joint: bool = False,
        told: str = "",
    ) -> None:
        self.told = told
        self._chooser, self._check, self._joint = chooser, check, joint
        self._objective: Objective = objective
        self._planner: Planner | None = None
        self._is_checked = False

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        if self._planner is None:
            if not self._is_checked:
                self.check(board.cluster)
            self._planner = Planner(self._chooser, Tables(board.cluster), self._objective, joint=self._joint)
        elif board.cluster is not self._planner.cluster and board.cluster != self._planner.cluster:
            self._planner.go_on_with(Tables(board.cluster))  # others hold more of a live one, or less
        return self._planner.decide(board)

    def check(self, cluster: Cluster) -> None:
        """Refuse a cluster that it was not trained on.

        Raises:
            RequestError: It has another shape.
        """
        self._is_checked = True
        if self._check is not None:
            self._check(cluster)

    @property
    def promised(self) -> set[str]:
        """Jobs whose deadline is promised, as far as they have not ended."""
        return set() if self._planner is None else set(self._planner.promises.kept)

    @property
    def refused(self) -> set[str]:
        """Jobs whose deadline could not be promised."""
        return set() if self._planner is None else self._planner.promises.refused
