"""Policies that run jobs in one order: by arrival, remaining or attained service, or in turns."""

from operator import attrgetter

from shunter.extensions.fleet.board import Board, Policy
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.dally_moves import HYSTERESIS, is_spread, upgrade
from shunter.extensions.fleet.policies.role import (
    by_priority,
    fastest_place,
    run_in_order,
    seconds_left,
    start_in_order,
)

DEMOTION_SERVICE_SECONDS = 57_600.0  # accelerator-seconds: 16 hours of one


class Fifo:
    """First in, first out: the first job in the queue that does not fit blocks all later jobs."""

    name = "fifo"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        while board.waiting:
            first = next(iter(by_priority(board.waiting.values(), board)))
            start_in_order([first], board)
            if first.placement is None:
                break


class FifoSkip:
    """First in, first out with overtaking: every job that fits starts, in the order of arrival; work-conserving."""

    name = "fifo-skip"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        start_in_order(list(by_priority(board.waiting.values(), board)), board)


class ShortestRemaining:
    """Shortest remaining time first, with preemption; unattainable in practice, where remaining times are unknown."""

    name = "srtf"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        run_in_order(board, lambda state: seconds_left(state, board))


class LeastAttained:
    """Least attained service first: at each round, jobs are ordered by their accelerator-seconds so far."""

    name = "las"
    round_seconds = 360.0

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        run_in_order(board, lambda state: state.service_seconds_at(board.now))


class Tiresias:
    """Tiresias (Gu et al., NSDI 2019): discretised two-dimensional attained service with two queues.

    Each queue is first come, first served; after 16 accelerator-hours a job moves permanently to the second. In each
    round all jobs are considered in order, and each job that still fits runs. New jobs get the machines with most free
    accelerators; running jobs keep their placements. This is the rule of the simulator published with Pollux (Qiao et
    al., OSDI 2021), whose results it reproduces.
    """

    name = "tiresias"
    round_seconds: float | None = 60.0

    def __init__(self) -> None:
        self._first: dict[str, None] = {}
        self._second: dict[str, None] = {}

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        jobs = {**board.running, **board.waiting}
        self._requeue(jobs, board)
        if not board.waiting:  # all running jobs fit
            return
        left = board.live_counts()
        granted: list[tuple[JobState, str]] = []
        for state in by_priority([jobs[name] for name in (*self._first, *self._second)], board):
            held = board.current_type(state)
            types = state.job.types(board.cluster) if held is None else (held,)
            fitting = [one for one in types if left[one] >= state.job.asks(one)]
            if fitting:
                left[fitting[0]] -= state.job.asks(fitting[0])
                granted.append((state, fitting[0]))
            elif state.placement is not None and state.job.preemptible:
                board.stop(state)
        for state, accelerator in granted:
            if state.placement is None:
                machines, job = board.cluster.machines_of[accelerator], state.job
                placement = board.fill(job.asks(accelerator), machines, need=job.need(accelerator))
                if placement is not None:
                    board.start(state, placement)

    def _requeue(self, jobs: dict[str, JobState], board: Board) -> None:
        """Remove jobs that have ended, add new jobs, and move jobs with enough service to the second queue."""
        for line in (self._first, self._second):
            for name in [name for name in line if name not in jobs]:
                del line[name]
        served = [jobs[name] for name in self._first]
        fallen = [state for state in served if state.service_seconds_at(board.now) >= DEMOTION_SERVICE_SECONDS]
        new = [state for name, state in board.waiting.items() if name not in self._first and name not in self._second]
        arrival = attrgetter("job.arrival_seconds")
        for state in sorted(fallen, key=arrival):
            del self._first[state.name]
            self._second[state.name] = None
        self._first |= {state.name: None for state in sorted(new, key=arrival)}


class Gandiva:
    """Gandiva (Xiao et al., OSDI 2018): time slicing, and migration to tighter placements.

    Jobs run from the front of the queue for one slice, then go to its end. Jobs that Gandiva packs onto one accelerator
    run in turns instead, because the simulation does not model sharing.
    """

    name = "gandiva"
    round_seconds: float | None = 360.0  # one slice

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
        if len(board.cluster.types) == 1:
            return again
        movable = [state for state in board.running.values() if state.job.preemptible and board.is_settled(state)]
        for state in movable:
            state.advance_to(board.now)
        movable.sort(key=lambda state: (-_seconds_left(state), state.name))
        moved = [state for state in by_priority(movable, board) if _move(state, board)]
        return self._inner.decide(board) if moved else again


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
