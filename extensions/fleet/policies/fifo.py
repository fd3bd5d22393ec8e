"""First in, first out, with and without overtaking: the baselines."""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.policies.role import by_priority, start_in_order


class Fifo:
    """First in, first out: the first job in the queue that does not fit blocks all behind it."""

    name = "fifo"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
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
        """See `Policy.decide`."""
        start_in_order(list(by_priority(board.waiting.values(), board)), board, skipping=True)
