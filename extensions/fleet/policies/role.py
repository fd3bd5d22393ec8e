"""The role of a policy, and what several policies do alike."""

from collections.abc import Callable, Iterable
from typing import Protocol

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import NETWORK, Placement
from shunter.extensions.fleet.job import JobState, tightest


class Policy(Protocol):
    """Who runs where, decided again and again.

    Asked at every arrival, end, outage and return, and at the moment it asked for; or, with `round_seconds`, at the
    multiples of it alone. It moves jobs with `Board.start` and `Board.stop` and keeps no hold of the board afterwards.
    A policy never looks at a clock: `Board.now` is the time, simulated or real.
    """

    @property
    def name(self) -> str:
        """What it is called on the command line and in MLflow."""
        ...

    @property
    def round_seconds(self) -> float | None:
        """Length of its rounds; None for one that follows the events."""
        ...

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs.

        Args:
            board: Who waits, who runs, what is free.

        Returns:
            The moment to be asked again even if nothing happens; None if there is no need.
        """
        ...


def fastest_place(state: JobState, board: Board, worst_level: int = NETWORK) -> Placement | None:
    """The place where a job would be through first among the tightest one of each type; None where none is free."""
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
    """The states, those of a higher priority first, else in the order given."""
    return sorted(states, key=lambda state: -state.job.priority) if board.has_priorities else states


def start_in_order(states: Iterable[JobState], board: Board, *, skipping: bool) -> None:
    """Start waiting jobs one after the other.

    Args:
        states: The jobs, the most urgent first.
        board: Where.
        skipping: Whether those behind one that does not fit may overtake it.
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
    """Let the most urgent of all jobs run that together fit, and stop the others; those that run keep their places.

    Those of a higher priority are more urgent, whatever else. A job that may not be stopped keeps what it holds.

    Args:
        board: Where.
        urgency: What a job is sorted by, the least first; those that run come before those that wait.
    """
    if _fits_beside(board.waiting.values(), board):  # nobody has to give way, so nobody else is looked at
        start_in_order(by_priority(sorted(board.waiting.values(), key=urgency), board), board, skipping=True)
        return
    states = list(by_priority(sorted([*board.running.values(), *board.waiting.values()], key=urgency), board))
    states.sort(key=lambda state: state.placement is None or state.job.preemptible)
    left = board.there()
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
    """Whether all that wait fit on the types they like best, beside all that run."""
    left = dict(board.free_of)
    for state in waiting:
        best = state.job.types(board.cluster)[0]
        left[best] -= state.job.asks(best)
        if left[best] < 0:
            return False
    return True


def seconds_left(state: JobState, board: Board) -> float:
    """How long a job still runs: where it is, or alone in the tightest place while it waits."""
    if state.conditions is not None:
        return state.end - board.now
    return state.seconds_left(state.job.ideal(board.cluster))


def alone(state: JobState, board: Board, accelerator: str) -> float:
    """How long a job would still run side by side on so many accelerators of a type."""
    return state.seconds_left(tightest(state.job.asks(accelerator), board.cluster, accelerator))


def _types_by_preference(state: JobState, board: Board) -> tuple[str, ...]:
    """The type that it is on comes first: those that run keep their places."""
    types = state.job.types(board.cluster)
    if state.placement is None:
        return types
    held = board.cluster.machines[state.placement[0][0]].accelerator
    return (held, *(name for name in types if name != held))
