"""The least mean completion time of a few jobs that are all there at once, by trying everything.

At the beginning and at each end every way to put jobs on servers of one accelerator is tried, stopping and moving
included: what no policy that decides at events can beat.
"""

from collections.abc import Iterator, Sequence
from math import inf

from shunter.extensions.fleet.cluster import MACHINE, Cluster
from shunter.extensions.fleet.job import Conditions, Job

State = tuple[float, int, float]
"""What a job has left, as a share; the server it runs on, or -1; seconds of restoring that are left there."""


def least_mean_completion(jobs: Sequence[Job], cluster: Cluster) -> float:
    """Try everything.

    Args:
        jobs: Of one accelerator each, all there at second 0.
        cluster: Machines of one accelerator each.
    """
    seconds = [
        [
            job.work.seconds_left(0.0, Conditions(machine.accelerator, (1,), MACHINE))
            if machine.accelerator in job.types(cluster)
            else inf
            for machine in cluster.machines
        ]
        for job in jobs
    ]
    starts = [job.start_seconds for job in jobs]
    moves = [job.move_seconds for job in jobs]
    best = inf

    def search(states: list[State], begun: list[bool], now: float, ended: float) -> None:
        """Sum of the completion times so far is `ended`; every job that is left ends later than now."""
        nonlocal best
        left = [i for i, (share, _, _) in enumerate(states) if share > 0]
        if not left:
            best = min(best, ended)
            return
        if ended + len(left) * now >= best:
            return
        for where in _assignments(left, len(cluster.machines)):
            if all(server < 0 for server in where.values()) or any(
                server >= 0 and seconds[i][server] == inf for i, server in where.items()
            ):
                continue
            placed, started = list(states), list(begun)
            for i, server in where.items():
                share, before, overhead = states[i]
                if server >= 0 and server != before:
                    overhead = moves[i] if begun[i] else starts[i]
                    started[i] = True
                placed[i] = share, server, overhead if server >= 0 else 0.0
            ends = {i: placed[i][2] + placed[i][0] * seconds[i][placed[i][1]] for i in left if placed[i][1] >= 0}
            step = min(ends.values())
            gone = 0
            for i, end in ends.items():
                share, server, overhead = placed[i]
                if end <= step * (1 + 1e-12):
                    placed[i], gone = (0.0, -1, 0.0), gone + 1
                else:
                    worked = max(step - overhead, 0.0)
                    placed[i] = share - worked / seconds[i][server], server, max(overhead - step, 0.0)
            search(placed, started, now + step, ended + gone * (now + step))

    search([(1.0, -1, 0.0)] * len(jobs), [False] * len(jobs), 0.0, 0.0)
    return best / len(jobs)


def _assignments(jobs: Sequence[int], servers: int, taken: frozenset[int] = frozenset()) -> Iterator[dict[int, int]]:
    """Every way to give each job a server of its own, or none (-1)."""
    if not jobs:
        yield {}
        return
    for server in (*range(servers), -1):
        if server in taken:
            continue
        for rest in _assignments(jobs[1:], servers, taken | {server} if server >= 0 else taken):
            yield {jobs[0]: server, **rest}
