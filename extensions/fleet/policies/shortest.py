"""Who has least left, or has had least so far, runs first."""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.policies.role import run_in_order, seconds_left

LAS_ROUND_SECONDS = 360.0


class ShortestRemaining:
    """Shortest remaining time first, by stopping longer jobs; a yardstick, for it knows what nobody knows."""

    name = "srtf"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        run_in_order(board, lambda state: seconds_left(state, board))


class LeastAttained:
    """Least attained service first: what a job has had, in seconds times accelerators, decides at each round."""

    name = "las"
    round_seconds = LAS_ROUND_SECONDS

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        run_in_order(board, lambda state: state.service_seconds_at(board.now))
