"""Policies by remaining or attained service: the job with the least runs first."""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.policies.role import run_in_order, seconds_left

LAS_ROUND_SECONDS = 360.0


class ShortestRemaining:
    """Shortest remaining time first, with preemption; a bound, since real remaining times are unknown."""

    name = "srtf"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        run_in_order(board, lambda state: seconds_left(state, board))


class LeastAttained:
    """Least attained service first: at each round, jobs are ordered by their accelerator-seconds so far."""

    name = "las"
    round_seconds = LAS_ROUND_SECONDS

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        run_in_order(board, lambda state: state.service_seconds_at(board.now))
