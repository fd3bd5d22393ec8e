"""Demonstrations: another policy's decisions, translated to choices of the agents, for imitation learning."""

from collections.abc import Callable, Sequence

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.learned.planner import PLACEMENT
from shunter.extensions.fleet.learned.view import Tables, View
from shunter.extensions.fleet.policies.role import Policy
from shunter.extensions.fleet.simulator import simulate

Demonstration = tuple[str, np.ndarray, np.ndarray]
"""Agent, candidates, and for each candidate whether the teacher took it (in any order)."""


class Teacher:
    """Wrapper of a policy that records its decisions as choices of the placement agent."""

    def __init__(self, policy: Policy, cluster: Cluster, draw: np.random.Generator) -> None:
        self._policy, self._tables, self._draw = policy, Tables(cluster), draw
        self.name, self.round_seconds = policy.name, policy.round_seconds
        self.kept: list[Demonstration] = []

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        fixed = {state.name for state in board.running.values() if not state.job.preemptible}
        view = View(board, self._tables, fixed)
        is_busy = bool(fixed) or any(
            state.name not in {one.name for one in view.jobs} for state in board.running.values()
        )
        again = self._policy.decide(board)
        given: dict[int, int] = {}
        for row, state in enumerate(view.jobs):
            if state.placement is not None:
                kind = board.cluster.machines[state.placement[0][0]].accelerator
                column = next(i for i, pool in enumerate(view.pools) if pool.accelerator == kind)
                if np.isfinite(view.seconds[row, column]):
                    given[row] = column
        self._keep(view, given, is_busy)
        return again

    def _keep(self, view: View, given: dict[int, int], is_busy: bool) -> None:
        pools = len(view.pools)
        while True:
            allowed = np.append(view.open().reshape(-1), is_busy)
            may = np.flatnonzero(allowed)
            waits = allowed.size - 1
            right = np.array([not given if i == waits else given.get(i // pools) == i % pools for i in may.tolist()])
            if not right.any():
                return
            if len(may) > 1:
                self.kept.append((PLACEMENT, view.candidates(allowed)[may], right.astype(np.float32)))
            taken = int(self._draw.choice(may[right]))
            if taken == waits:
                return
            row, column = divmod(taken, pools)
            view.take(row, column, int(view.counts[row, column]), float(view.seconds[row, column]))
            del given[row]
            is_busy = True


def demonstrate(
    traces: Sequence[Sequence[Job]], cluster: Cluster, make: Callable[[], Policy], draw: np.random.Generator
) -> list[Demonstration]:
    """Return the demonstrations of a policy on some traces."""
    found: list[Demonstration] = []
    for jobs in traces:
        teacher = Teacher(make(), cluster, draw)
        simulate(jobs, cluster, teacher)
        found += teacher.kept
    return found
