"""Moves of Dally: network-sensitive running jobs move to tighter placements, and less sensitive ones make room."""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import MACHINE, NETWORK, RACK, Placement
from shunter.extensions.fleet.job import JobState

QUANTUM_SECONDS = 600.0  # run time before a job moves for another's sake; doubles with each move
MOST_MOVES = 3  # for other jobs' sake
HYSTERESIS = 2.0  # minimum ratio of a move's savings to its cost
MOST_SWAPS_TRIED = 32  # jobs per decision


class Mover:
    """Mover of running jobs to tighter placements, starting with the jobs that the network slows most.

    An upgrade uses free accelerators. A swap also uses the accelerators of jobs that are less sensitive to the network,
    if this saves accelerator time in total; these jobs get other accelerators at once. A job that was moved in favour
    of another job is not moved again for a while.
    """

    def __init__(self) -> None:
        self._moved: dict[str, int] = {}

    def improve(self, board: Board) -> bool:
        """Make all worthwhile moves; return True if any job was moved."""
        hurt = [state for state in board.running.values() if state.job.preemptible and is_spread(state, board)]
        for state in hurt:
            state.advance_to(board.now)
        moved = False
        for state in sorted(hurt, key=lambda state: (sensitivity(state), state.name))[:MOST_SWAPS_TRIED]:
            if board.is_settled(state):
                moved = upgrade(state, board) or self._swap(state, board) or moved
        return moved

    def _swap(self, state: JobState, board: Board) -> bool:
        assert state.placement is not None
        assert state.conditions is not None
        goal = state.job.best_level(board.cluster, state.conditions.accelerator)
        groups = board.groups(state.conditions.accelerator, min(goal, RACK))
        if goal == MACHINE:
            groups.sort(key=lambda one: (-board.free[min(one)], min(one)))
        for group in groups:
            victims = self._victims(state, group, board)
            if victims and self._try_swap(state, victims, goal, board):
                for victim in victims:
                    self._moved[victim.name] = self._moved.get(victim.name, 0) + 1
                return True
        return False

    def _victims(self, state: JobState, group: frozenset[int], board: Board) -> list[JobState]:
        """Return the jobs to move away from a group of machines to make room for `state`; empty if they are too few.

        Only jobs that are less sensitive to the network than `state` are chosen, the least sensitive first.
        """
        own = sum(count for machine, count in state.placement or () if machine in group)
        missing = state.held - own - sum(board.free[machine] for machine in group)
        inside = [
            other
            for other in board.running.values()
            if other is not state and self._may_move(other, board) and {i for i, _ in other.placement or ()} <= group
        ]
        inside.sort(key=lambda other: (-worst_sensitivity(other, board), other.held, other.name))
        chosen: list[JobState] = []
        for other in inside:
            if missing <= 0:
                break
            if worst_sensitivity(other, board) > worst_sensitivity(state, board):
                chosen.append(other)
                missing -= other.held
        return chosen if missing <= 0 else []

    def _may_move(self, state: JobState, board: Board) -> bool:
        moves = self._moved.get(state.name, 0)
        has_run = board.now - state.started_at
        is_free = state.job.preemptible and board.is_settled(state)
        return is_free and moves < MOST_MOVES and has_run >= QUANTUM_SECONDS * 2**moves

    def _try_swap(self, state: JobState, victims: list[JobState], goal: int, board: Board) -> bool:
        """Move the victims away and the job to a tighter placement; undo this and return False if it saves no time."""
        concerned = [state, *victims]
        before: list[Placement] = []
        held = [one.held for one in concerned]
        gain = 0.0
        for one, count in zip(concerned, held, strict=True):
            assert one.placement is not None
            assert one.conditions is not None
            one.advance_to(board.now)
            gain += (one.seconds_left(one.conditions) - HYSTERESIS * one.job.move_seconds) * count
            before.append(one.placement)
        for one in concerned:
            board.stop(one)
        for one, count in zip(concerned, held, strict=True):
            assert one.conditions is not None
            accelerator = one.conditions.accelerator
            new = board.place(count, accelerator, goal if one is state else NETWORK, need=one.job.need(accelerator))
            if new is None:
                gain = -1.0
                break
            board.start(one, new)
            gain -= one.seconds_left(board.conditions(new)) * count
        if gain > 0:
            return True
        for one in concerned:
            if one.placement is not None:
                board.stop(one)
        for one, placement in zip(concerned, before, strict=True):
            board.start(one, placement)
        return False


def upgrade(state: JobState, board: Board) -> bool:
    """Move a running job to a tighter free placement if that saves twice the time of the move; return True if moved."""
    before = state.placement
    assert before is not None
    assert state.conditions is not None
    level, accelerator = board.cluster.level(before), state.conditions.accelerator
    now_left, held = state.seconds_left(state.conditions), state.held
    board.stop(state)
    better = board.place(held, accelerator, level - 1, need=state.job.need(accelerator))
    if better is not None:
        saved = now_left - state.seconds_left(board.conditions(better))
        if saved > HYSTERESIS * state.job.move_seconds and saved > 0:
            board.start(state, better)
            return True
    board.start(state, before)
    return False


def is_spread(state: JobState, board: Board) -> bool:
    """Return True if a running job is more spread out than necessary."""
    if state.placement is None or len(state.placement) == 1 or state.conditions is None:
        return False
    best = state.job.best_level(board.cluster, state.conditions.accelerator)
    return state.conditions.level > best


def sensitivity(state: JobState) -> float:
    """Return the ratio of ideal to actual running time of a job: 1 means that the network has not slowed it."""
    return state.ideal_seconds / state.run_seconds if state.run_seconds else 1.0


def worst_sensitivity(state: JobState, board: Board) -> float:
    """Return the predicted `sensitivity` of a job spread over the network: 1 is insensitive, less is sensitive."""
    if state.ideal is None or state.held == 1:
        return 1.0
    wide = state.ideal._replace(level=2, slowdown=board.cluster.network.congestion)
    left = state.seconds_left(wide)
    return state.seconds_left(state.ideal) / left if left else 1.0
