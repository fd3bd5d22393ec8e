"""Dally's reservation: the training that would end last of all is not overtaken for ever by smaller ones."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, nextafter

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import MACHINE, RACK, Placement
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.role import alone

# Of the time that all there is would take on a cluster without a gap: what a job has waited before places are kept for
# it. Set on the slices of the Philly trace that begin at 5 %, 15 %, ... 95 % (300 jobs each, congestion 1 and 3), among
# no wait, 5, 10, 25, 50, 75 and 100 %: less lets the small ones wait longer, more lets the large one end later.
AGE_SHARE = 0.25


@dataclass
class Reservation:
    """Machines that are kept for a job.

    Attributes:
        job: Its name.
        machines: Within which it gets its accelerators.
        moment: When enough of them will be free.
        spare: Accelerators of theirs that will then be left over.
    """

    job: str
    machines: frozenset[int]
    moment: float
    spare: int

    def allows(self, state: JobState, placement: Placement, board: Board) -> bool:
        """Whether another job may take a place: beside the machines, of what is left over, or until the moment."""
        inside = _inside(placement, self.machines)
        return inside <= self.spare or self._is_through(state, placement, board)

    def note(self, state: JobState, placement: Placement, board: Board) -> None:
        """Another job takes a place."""
        if not self._is_through(state, placement, board):
            self.spare -= _inside(placement, self.machines)

    def _is_through(self, state: JobState, placement: Placement, board: Board) -> bool:
        conditions = board.conditions(placement)
        on, job = conditions.accelerator, state.job
        begins = job.moves_in(on) if state.starts else job.starts_in(on)
        return board.now + begins + state.seconds_left(conditions) <= self.moment


def overdue(board: Board) -> list[JobState]:
    """The waiting jobs that the end of all hangs on, the longest first.

    Those that alone still take longer than everything there is would take on a cluster without a gap, and that have
    waited for a share of that time already. Only jobs of the highest priority that waits count.
    """
    if not board.waiting:
        return []
    there = board.there()
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
    """Keep the machines within which a waiting job would be through first, as tight as it can lie; None where none are.

    A job that has no place although enough is free lacks something else, and nothing is kept for it.
    """
    best: tuple[float, Reservation] | None = None
    for name, seconds in _alone(state, board, board.there()).items():
        asked = state.job.asks(name)
        for machines in _groups(name, state.job.best_level(board.cluster, name), board):
            moment, free = _free_at(machines, asked, board)
            if free < asked:
                continue
            if moment == board.now:
                return None
            if best is None or moment + seconds < best[0]:
                best = moment + seconds, Reservation(state.name, machines, moment, free - asked)
    return best[1] if best else None


def _alone(state: JobState, board: Board, there: Mapping[str, int]) -> dict[str, float]:
    """How long a job would still run on each of its types of which enough accelerators are there."""
    types = state.job.types(board.cluster)
    return {name: alone(state, board, name) for name in types if there[name] >= state.job.asks(name)}


def _free_at(machines: frozenset[int], asked: int, board: Board) -> tuple[float, int]:
    """When so many accelerators of some machines will be free, and how many are then; too few if they never are."""
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
    """When a running job will be through; one that is placed in this very decision goes on from there."""
    if board.is_settled(state):
        return state.end
    assert state.placement is not None
    return board.now + state.job.move_seconds + state.seconds_left(board.conditions(state.placement))


def _groups(accelerator: str, level: int, board: Board) -> Iterator[frozenset[int]]:
    """Sets of machines within which a placement has a level: each machine, each rack, or all."""
    there = [machine for machine in board.cluster.machines_of[accelerator] if not board.is_away(machine)]
    if level == MACHINE:
        yield from (frozenset([machine]) for machine in there)
    elif level == RACK:
        racks: dict[int, set[int]] = {}
        for machine in there:
            racks.setdefault(board.cluster.rack_of[machine], set()).add(machine)
        yield from (frozenset(rack) for rack in racks.values())
    else:
        yield frozenset(there)
