"""What elastic policies choose among: for each job a type and a number of accelerators, with what it would do there."""

from typing import NamedTuple

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.job import JobState, tightest


class Option(NamedTuple):
    """One way to run a job.

    Attributes:
        accelerator: Type.
        accelerators: How many.
        goodput: Share of what it has left that it would do in a second, side by side.
        is_kept: Whether it runs so now.
    """

    accelerator: str
    accelerators: int
    goodput: float
    is_kept: bool


def options_of(state: JobState, board: Board) -> list[Option]:
    """The options of a job that the machines which are there hold; of one that may not be stopped, what it has."""
    state.advance_to(board.now)
    held = None if state.placement is None else board.cluster.machines[state.placement[0][0]].accelerator
    found, there = [], board.there()
    for name in state.job.types(board.cluster):
        for count in state.job.work.counts(state.job.asks(name)):
            is_kept = held == name and state.held == count
            if count > there[name] or (held is not None and not state.job.preemptible and not is_kept):
                continue
            seconds = state.seconds_left(tightest(count, board.cluster, name))
            found.append(Option(name, count, 1.0 / max(seconds, 1e-6), is_kept))
    return found


def restart_factor(state: JobState, board: Board) -> float:
    """What a move leaves of a job's goodput, by its age, its restarts and what one takes: (T - N S) / (T + S)."""
    age = board.now - state.job.arrival_seconds
    cost = state.job.move_seconds
    if not state.starts or not cost:
        return 1.0
    return max(age - (state.starts - 1) * cost, 0.0) / (age + cost)


def carry_out(picks: dict[str, Option], board: Board) -> None:
    """Let every job run as was picked, and wait if nothing was; who runs so already stays where it is."""
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
