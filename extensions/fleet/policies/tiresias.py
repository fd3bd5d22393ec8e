"""Tiresias (Gu et al., NSDI 2019): discretised two-dimensional attained service with two queues."""

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.role import by_priority

DEMOTION_SERVICE_SECONDS = 57_600.0  # accelerator-seconds: 16 hours of one


class Tiresias:
    """Two queues, each first come, first served; after 16 accelerator-hours a job moves permanently to the second.

    In each round all jobs are considered in order, and each job that still fits runs. New jobs get the machines
    with most free accelerators; running jobs keep their placements. This is the rule of the simulator published with
    Pollux (Qiao et al., OSDI 2021), whose results it reproduces.
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
                machines = board.cluster.machines_of[accelerator]
                job = state.job
                placement = board.fill(job.asks(accelerator), machines, need=job.need(accelerator))
                if placement is not None:
                    board.start(state, placement)

    def _requeue(self, jobs: dict[str, JobState], board: Board) -> None:
        """Remove jobs that have ended, add new jobs, and move jobs with enough service to the second queue."""
        for line in (self._first, self._second):
            for name in [name for name in line if name not in jobs]:
                del line[name]
        fallen = [
            state
            for name in self._first
            if (state := jobs[name]).service_seconds_at(board.now) >= DEMOTION_SERVICE_SECONDS
        ]
        new = [state for name, state in board.waiting.items() if name not in self._first and name not in self._second]
        for state in sorted(fallen, key=_arrival):
            del self._first[state.name]
            self._second[state.name] = None
        self._first |= {state.name: None for state in sorted(new, key=_arrival)}


def _arrival(state: JobState) -> float:
    return state.job.arrival_seconds
