"""Wrapper of a policy that afterwards moves running jobs to better free accelerators."""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.dally_moves import HYSTERESIS
from shunter.extensions.fleet.policies.role import Policy, by_priority, fastest_place


class Moving:
    """Policy that first serves waiting jobs, then moves running jobs to faster accelerators that are still free.

    A job moves by a checkpoint if this makes it end earlier by more than twice the time of the move; jobs with the
    longest remaining time are moved first. The accelerators that a move releases are offered to waiting jobs.

    Args:
        name: See `Policy.name`.
        inner: Policy that serves the waiting jobs; called twice per decision.
    """

    def __init__(self, name: str, inner: Policy) -> None:
        self.name, self._inner = name, inner
        self.round_seconds = inner.round_seconds

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        again = self._inner.decide(board)
        if len(board.cluster.types) > 1 and _move_all(board):
            again = self._inner.decide(board)
        return again


def _move_all(board: Board) -> bool:
    movable = [state for state in board.running.values() if state.job.preemptible and board.is_settled(state)]
    for state in movable:
        state.advance_to(board.now)
    movable.sort(key=lambda state: (-_seconds_left(state), state.name))
    return sum(_move(state, board) for state in by_priority(movable, board)) > 0


def _move(state: JobState, board: Board) -> bool:
    before, conditions = state.placement, state.conditions
    assert before is not None
    assert conditions is not None
    job, types = state.job, state.job.types(board.cluster)
    if not any(board.free_of[name] >= job.asks(name) for name in types if name != conditions.accelerator):
        return False
    left = _seconds_left(state)
    board.stop(state)
    better = fastest_place(state, board)
    if better is not None:
        after = board.conditions(better)
        saved = left - state.seconds_left(after)
        if after.accelerator != conditions.accelerator and saved > HYSTERESIS * state.job.moves_in(after.accelerator):
            board.start(state, better)
            return True
    board.start(state, before)
    return False


def _seconds_left(state: JobState) -> float:
    assert state.conditions is not None
    return state.seconds_left(state.conditions)
