"""Reservations of Dally, so that smaller jobs do not overtake the job that would end last forever."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, nextafter

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Placement
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.role import alone

# Waiting time of a job before machines are reserved for it, relative to the time of all current work on the cluster
# without gaps. Tuned on the slices of the Philly trace that begin at 5 %, 15 %, ... 95 % (300 jobs each, congestion 1
# and 3), among 0, 5, 10, 25, 50, 75 and 100 %: less delays the small jobs, more delays the large one.
AGE_SHARE = 0.25


@dataclass
class Reservation:
    """Machines that are reserved for a job.

    Attributes:
        moment: Time at which enough accelerators of the machines will be free.
        spare: Number of accelerators that will be free at `moment` and that the job does not need.
    """

    job: str
    machines: frozenset[int]
    moment: float
    spare: int

    def allows(self, state: JobState, placement: Placement, board: Board) -> bool:
        """Return True if another job may use a placement.

        It may if it needs at most `spare` accelerators of the reserved machines, or releases them by `moment`.
        """
        inside = _inside(placement, self.machines)
        return inside <= self.spare or self._is_through(state, placement, board)

    def note(self, state: JobState, placement: Placement, board: Board) -> None:
        """Subtract from `spare` the reserved accelerators that another job will still hold at `moment`."""
        if not self._is_through(state, placement, board):
            self.spare -= _inside(placement, self.machines)

    def _is_through(self, state: JobState, placement: Placement, board: Board) -> bool:
        conditions = board.conditions(placement)
        on, job = conditions.accelerator, state.job
        begins = job.moves_in(on) if state.starts else job.starts_in(on)
        return board.now + begins + state.seconds_left(conditions) <= self.moment


def overdue(board: Board) -> list[JobState]:
    """Return the waiting jobs that determine the makespan, the longest first.

    These jobs alone take longer than all current work would take on a perfectly packed cluster, and have waited for a
    share of that time. Only waiting jobs of the highest priority count.
    """
    if not board.waiting:
        return []
    there = board.live_counts()
    left = {state.name: min(_alone(state, board, there).values(), default=0.0) for state in board.waiting.values()}
    area = sum(left[state.name] * state.job.accelerators for state in board.waiting.values())
    area += sum((_end(state, board) - board.now) * state.held for state in board.running.values())
    all_through = area / max(sum(there.values()), 1)
    highest = max(state.job.priority for state in board.waiting.values())
    found = [
        state
        for state in board.waiting.values()
        if state.job.priority == highest
        and left[state.name] >= all_through
        and board.now - state.job.arrival_seconds >= AGE_SHARE * all_through
    ]
    return sorted(found, key=lambda state: (-left[state.name], state.name))


def reserve(state: JobState, board: Board) -> Reservation | None:
    """Reserve for a waiting job the group of machines on which it would end earliest, at its tightest level.

    Returns:
        None if no group is large enough, or if enough accelerators are already free.
    """
    best: tuple[float, Reservation] | None = None
    for name, seconds in _alone(state, board, board.live_counts()).items():
        asked = state.job.asks(name)
        for machines in board.groups(name, state.job.best_level(board.cluster, name)):
            moment, free = _free_at(machines, asked, board)
            if free < asked:
                continue
            if moment == board.now:
                return None
            if best is None or moment + seconds < best[0]:
                best = moment + seconds, Reservation(state.name, machines, moment, free - asked)
    return best[1] if best else None


def _alone(state: JobState, board: Board, there: Mapping[str, int]) -> dict[str, float]:
    """Return the job's remaining seconds by accelerator type, for types with enough accelerators that are up."""
    types = state.job.types(board.cluster)
    return {name: alone(state, board, name) for name in types if there[name] >= state.job.asks(name)}


def _free_at(machines: frozenset[int], asked: int, board: Board) -> tuple[float, int]:
    """Return the time at which `asked` accelerators of the machines will be free, and how many will be free then.

    A number below `asked` means that the machines have too few accelerators.
    """
    free, moment = sum(board.free[machine] for machine in machines), board.now
    held = {state.name: _inside(state.placement or (), machines) for state in board.running.values()}
    ends = sorted((_end(state, board), held[state.name]) for state in board.running.values() if held[state.name])
    for end, count in ends:
        if free >= asked:
            break
        free, moment = free + count, max(end, nextafter(board.now, inf))
    return moment, free


def _inside(placement: Placement, machines: frozenset[int]) -> int:
    return sum(count for machine, count in placement if machine in machines)


def _end(state: JobState, board: Board) -> float:
    """Return the predicted time at which a running job ends."""
    if board.is_settled(state):
        return state.end
    assert state.placement is not None
    return board.now + state.job.move_seconds + state.seconds_left(board.conditions(state.placement))
