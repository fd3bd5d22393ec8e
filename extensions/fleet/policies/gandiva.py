"""Policy of Gandiva (Xiao et al., OSDI 2018): time slicing, and migration to tighter placements.

Jobs that Gandiva packs onto one accelerator run in turns instead, because the simulation does not model sharing.
"""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.policies.dally_moves import is_spread, upgrade
from shunter.extensions.fleet.policies.role import run_in_order

SLICE_SECONDS = 360.0


class Gandiva:
    """Round-robin scheduler: jobs run from the front of the queue for one slice, then go to its end."""

    name = "gandiva"
    round_seconds: float | None = SLICE_SECONDS

    def __init__(self) -> None:
        self._line: dict[str, int] = {}  # position in the queue by name

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        line = [name for name in self._line if name in board.waiting]
        line += [name for name in board.waiting if name not in self._line]
        line += [name for name in self._line if name in board.running]
        self._line = {name: place for place, name in enumerate(line)}
        run_in_order(board, lambda state: self._line[state.name])
        for state in [state for state in board.running.values() if state.job.preemptible and is_spread(state, board)]:
            if board.is_settled(state):
                state.advance_to(board.now)
                upgrade(state, board)
