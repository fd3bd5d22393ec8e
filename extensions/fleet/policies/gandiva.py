"""After Gandiva (Xiao et al., OSDI 2018): time slices by turns, and migration to tighter places.

What Gandiva packs onto one accelerator runs by turns here: no work in this simulation knows how two jobs share one.
"""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.policies.dally_moves import is_spread, upgrade
from shunter.extensions.fleet.policies.role import run_in_order

SLICE_SECONDS = 360.0


class Gandiva:
    """Who has run goes to the end of the line; whoever fits from its front runs for the next slice."""

    name = "gandiva"
    round_seconds: float | None = SLICE_SECONDS

    def __init__(self) -> None:
        self._line: dict[str, int] = {}  # place in it by name

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        line = [name for name in self._line if name in board.waiting]
        line += [name for name in board.waiting if name not in self._line]
        line += [name for name in self._line if name in board.running]
        self._line = {name: place for place, name in enumerate(line)}
        run_in_order(board, lambda state: self._line[state.name])
        for state in [state for state in board.running.values() if state.job.preemptible and is_spread(state, board)]:
            if board.is_settled(state):
                state.advance_to(board.now)
                upgrade(state, board)
