"""Interface of a policy, and functions that several policies share."""

from collections.abc import Callable, Iterable
from typing import Protocol

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import NETWORK, Placement
from shunter.extensions.fleet.job import JobState, tightest


class Policy(Protocol):
    """Scheduling policy: decides repeatedly which jobs run where.

    `decide` is called at every arrival, end, outage and return, and at the time that it requested; with
    `round_seconds`, only at multiples of `round_seconds`. It moves jobs with `Board.start` and `Board.stop` and keeps
    no reference to the board. A policy never reads a clock: `Board.now` is the time, simulated or real.
    """

    @property
    def name(self) -> str:
        """Name of the policy on the command line and in MLflow."""
        ...

    @property
    def round_seconds(self) -> float | None:
        """Length of a scheduling round in seconds; None for a policy that reacts to events."""
        ...

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs of the cluster.

        Args:
            board: State of the cluster.

        Returns:
            Time of the next decision even if nothing happens; None if there is no need.
        """
        ...


def fastest_place(state: JobState, board: Board, worst_level: int = NETWORK) -> Placement | None:
    """Return the placement with the earliest end among the tightest free one of each type; None if none is free."""
    types = state.job.types(board.cluster)
    if len(types) == 1:
        return board.place(state.job.asks(types[0]), types[0], worst_level, need=state.job.need(types[0]))
    best: tuple[float, Placement] | None = None
    for name in types:
        placement = board.place(state.job.asks(name), name, worst_level, need=state.job.need(name))
        if placement is None:
            continue
        seconds = state.seconds_left(board.conditions(placement))
        if best is None or seconds < best[0]:
            best = seconds, placement
    return best[1] if best else None


def by_priority(states: Iterable[JobState], board: Board) -> Iterable[JobState]:
    """Return the jobs by descending priority; jobs of equal priority keep their order."""
    return sorted(states, key=lambda state: -state.job.priority) if board.has_priorities else states


def start_in_order(states: Iterable[JobState], board: Board, *, skipping: bool) -> None:
    """Start waiting jobs in the given order.

    Args:
        states: The jobs, the most urgent first.
        board: State of the cluster.
        skipping: If True, jobs may overtake one that does not fit.
    """
    for state in states:
        if not any(board.free_of.values()):
            return
        placement = fastest_place(state, board)
        if placement is not None:
            board.start(state, placement)
        elif not skipping:
            return


def run_in_order(board: Board, urgency: Callable[[JobState], float]) -> None:
    """Run the most urgent jobs that fit together, and stop the others; jobs that run keep their placements.

    Jobs of higher priority always come first. A job that cannot be stopped keeps its accelerators.

    Args:
        board: State of the cluster.
        urgency: Sort key of a job, ascending; ties go to running jobs.
    """
    if _fits_beside(board.waiting.values(), board):  # no job has to stop
        start_in_order(by_priority(sorted(board.waiting.values(), key=urgency), board), board, skipping=True)
        return
    states = list(by_priority(sorted([*board.running.values(), *board.waiting.values()], key=urgency), board))
    states.sort(key=lambda state: state.placement is None or state.job.preemptible)
    left = board.live_counts()
    chosen: list[JobState] = []
    for state in states:
        for name in _types_by_preference(state, board):
            if left[name] >= state.job.asks(name):
                left[name] -= state.job.asks(name)
                chosen.append(state)
                break
    names = {state.name for state in chosen}
    for state in [state for state in board.running.values() if state.name not in names]:
        board.stop(state)
    start_in_order([state for state in chosen if state.placement is None], board, skipping=True)


def _fits_beside(waiting: Iterable[JobState], board: Board) -> bool:
    """Return True if all waiting jobs fit on free accelerators of their preferred types."""
    left = dict(board.free_of)
    for state in waiting:
        best = state.job.types(board.cluster)[0]
        left[best] -= state.job.asks(best)
        if left[best] < 0:
            return False
    return True


def seconds_left(state: JobState, board: Board) -> float:
    """Return the remaining time of a job: at its placement, or alone in the tightest placement while it waits."""
    if state.conditions is not None:
        return state.end - board.now
    return state.seconds_left(state.job.ideal(board.cluster))


def alone(state: JobState, board: Board, accelerator: str) -> float:
    """Return the remaining time of a job in a consolidated placement of a type."""
    return state.seconds_left(tightest(state.job.asks(accelerator), board.cluster, accelerator))


def _types_by_preference(state: JobState, board: Board) -> tuple[str, ...]:
    """Return the usable types of a job, its current one first, so that running jobs keep their placements."""
    held, types = board.current_type(state), state.job.types(board.cluster)
    return types if held is None else (held, *(name for name in types if name != held))
