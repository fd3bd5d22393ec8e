"""Policies that run jobs in one order: by arrival, with and without overtaking, or by remaining or attained service."""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.policies.role import by_priority, run_in_order, seconds_left, start_in_order


class Fifo:
    """First in, first out: the first job in the queue that does not fit blocks all later jobs."""

    name = "fifo"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        while board.waiting:
            first = next(iter(by_priority(board.waiting.values(), board)))
            start_in_order([first], board, skipping=False)
            if first.placement is None:
                break


class FifoSkip:
    """First in, first out with overtaking: every job that fits starts, in the order of arrival; work-conserving."""

    name = "fifo-skip"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        start_in_order(list(by_priority(board.waiting.values(), board)), board, skipping=True)


LAS_ROUND_SECONDS = 360.0


class ShortestRemaining:
    """Shortest remaining time first, with preemption; unattainable in practice, where remaining times are unknown."""

    name = "srtf"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        run_in_order(board, lambda state: seconds_left(state, board))


class LeastAttained:
    """Least attained service first: at each round, jobs are ordered by their accelerator-seconds so far."""

    name = "las"
    round_seconds = LAS_ROUND_SECONDS

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        run_in_order(board, lambda state: state.service_seconds_at(board.now))
