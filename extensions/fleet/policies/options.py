"""Options of elastic policies: for each job an accelerator type and number, with the goodput."""

from typing import NamedTuple

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.job import JobState, tightest


class Option(NamedTuple):
    """One way to run a job.

    Attributes:
        accelerator: Accelerator type.
        goodput: Share of its remaining work that the job would do per second in a consolidated placement.
        is_kept: True for the job's current type and number.
    """

    accelerator: str
    accelerators: int
    goodput: float
    is_kept: bool


def options_of(state: JobState, board: Board) -> list[Option]:
    """Return the options of a job on machines that are up; a running job that cannot be stopped has only its own."""
    state.advance_to(board.now)
    held = board.current_type(state)
    found, there = [], board.live_counts()
    for name in state.job.types(board.cluster):
        for count in state.job.work.counts(state.job.asks(name)):
            is_kept = held == name and state.held == count
            if count > there[name] or (held is not None and not state.job.preemptible and not is_kept):
                continue
            seconds = state.seconds_left(tightest(count, board.cluster, name))
            found.append(Option(name, count, 1.0 / max(seconds, 1e-6), is_kept))
    return found


def restart_factor(state: JobState, board: Board) -> float:
    """Return the factor by which a move reduces goodput: (T - N S) / (T + S).

    T is the age of the job, N the number of its restarts and S the seconds of a restart.
    """
    age = board.now - state.job.arrival_seconds
    cost = state.job.move_seconds
    if not state.starts or not cost:
        return 1.0
    return max(age - (state.starts - 1) * cost, 0.0) / (age + cost)


def carry_out(picks: dict[str, Option], board: Board) -> None:
    """Run every job with its picked option and stop all other jobs; jobs that already run with it do not move."""
    for state in list(board.running.values()):
        option = picks.get(state.name)
        if option is None or not option.is_kept:
            board.stop(state)
    waiting = [(picks[name], state) for name, state in board.waiting.items() if name in picks]
    for option, state in sorted(waiting, key=lambda one: -one[0].accelerators):
        need = state.job.need(option.accelerator)
        placement = board.place(option.accelerators, option.accelerator, need=need)
        if placement is not None:
            board.start(state, placement)
