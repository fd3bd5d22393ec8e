"""Functions that several policies share."""

from collections.abc import Callable, Iterable, Mapping

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import NETWORK, Placement
from shunter.extensions.fleet.job import JobState, tightest


def fastest_place(
    state: JobState,
    board: Board,
    worst_level: Callable[[str], int] = lambda accelerator: NETWORK,
    without: frozenset[int] = frozenset(),
) -> Placement | None:
    """Return the placement with the earliest end among the tightest free one of each type; None if none is free.

    Args:
        state: Waiting job.
        board: State of the cluster.
        worst_level: Function that returns the loosest allowed level on a type.
        without: Machines that must not be used.
    """
    types = state.job.types(board.cluster)
    best: tuple[float, Placement] | None = None
    for name in types:
        need = state.job.need(name)
        placement = board.place(state.job.asks(name), name, worst_level(name), need=need, without=without)
        if len(types) == 1:
            return placement
        if placement is not None:
            seconds = state.seconds_left(board.conditions(placement))
            if best is None or seconds < best[0]:
                best = seconds, placement
    return best[1] if best else None


def by_priority(states: Iterable[JobState], board: Board) -> Iterable[JobState]:
    """Return the jobs by descending priority; jobs of equal priority keep their order."""
    return sorted(states, key=lambda state: -state.job.priority) if board.has_priorities else states


def start_in_order(states: Iterable[JobState], board: Board) -> None:
    """Start the waiting jobs that fit, in the given order."""
    for state in states:
        if not any(board.free_of.values()):
            return
        placement = fastest_place(state, board)
        if placement is not None:
            board.start(state, placement)


def run_in_order(board: Board, urgency: Callable[[JobState], float]) -> None:
    """Run the most urgent jobs that fit together, and stop the others; jobs that run keep their placements.

    Jobs of higher priority always come first. A job that cannot be stopped keeps its accelerators.

    Args:
        board: State of the cluster.
        urgency: Sort key of a job, ascending; ties go to running jobs.
    """
    left = dict(board.free_of)
    for state in board.waiting.values():
        best = state.job.types(board.cluster)[0]
        left[best] -= state.job.asks(best)
    if min(left.values()) >= 0:  # all waiting jobs fit beside the running ones
        start_in_order(by_priority(sorted(board.waiting.values(), key=urgency), board), board)
        return
    states = list(by_priority(sorted([*board.running.values(), *board.waiting.values()], key=urgency), board))
    states.sort(key=lambda state: state.placement is None or state.job.preemptible)
    left = board.live_counts()
    chosen: dict[str, JobState] = {}
    for state in states:
        held, types = board.current_type(state), state.job.types(board.cluster)
        for name in types if held is None else dict.fromkeys((held, *types)):  # a running job keeps its placement
            if left[name] >= state.job.asks(name):
                left[name] -= state.job.asks(name)
                chosen[state.name] = state
                break
    for state in [state for name, state in board.running.items() if name not in chosen]:
        board.stop(state)
    start_in_order([state for state in chosen.values() if state.placement is None], board)


def run_picked(picks: Mapping[str, tuple[str, int]], board: Board) -> None:
    """Run each picked job on its accelerator type and number, and stop all others; jobs that run so do not move."""
    for state in list(board.running.values()):
        if picks.get(state.name) != (board.current_type(state), state.held):
            board.stop(state)
    waiting = [(state, *picks[name]) for name, state in board.waiting.items() if name in picks]
    for state, accelerator, count in sorted(waiting, key=lambda one: -one[2]):
        placement = board.place(count, accelerator, need=state.job.need(accelerator))
        if placement is not None:
            board.start(state, placement)


def seconds_left(state: JobState, board: Board) -> float:
    """Return the remaining time of a job: at its placement, or alone in the tightest placement while it waits."""
    if state.conditions is not None:
        return state.end - board.now
    return state.seconds_left(state.job.ideal(board.cluster))


def alone(state: JobState, board: Board, accelerator: str) -> float:
    """Return the remaining time of a job in a consolidated placement of a type."""
    return state.seconds_left(tightest(state.job.asks(accelerator), board.cluster, accelerator))
