"""First in, first out, with and without overtaking: the baselines that nobody should lose to."""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.policies.role import by_priority, start_in_order


class Fifo:
    """The first in the queue that does not fit holds up all behind it."""

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
    """Who fits starts, in the order of arrival; work-conserving."""

    name = "fifo-skip"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        start_in_order(list(by_priority(board.waiting.values(), board)), board, skipping=True)
