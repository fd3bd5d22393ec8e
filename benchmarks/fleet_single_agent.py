"""A learned policy whose single agent chooses placement, accelerators and power cap at once, beside three agents."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.learned.planner import Pick, Planner
from shunter.extensions.fleet.learned.policy import Learned
from shunter.extensions.fleet.learned.promises import is_over
from shunter.extensions.fleet.learned.view import JOB_FEATURES, PLACEMENT_FEATURES, SERVER_FEATURES, View

JOINT = "joint"
SINGLE_AGENT = {JOINT: PLACEMENT_FEATURES + JOB_FEATURES + SERVER_FEATURES}


class SinglePlanner(Planner):
    """The decisions of one agent, for jobs that can be stopped and have no deadline."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._picked_caps: dict[str, int] = {}

    def _pick_one(self, view: View, allowed: np.ndarray, budget: float, *, may_wait: bool) -> Pick | None:
        """The next job with its pool, accelerators and power cap."""
        with_wait = np.append(allowed.reshape(-1), may_wait)
        placements = view.candidates(with_wait)
        options: list[tuple[Pick, int] | None] = []
        rows: list[np.ndarray] = []
        for index in np.flatnonzero(allowed.reshape(-1)):
            row, column = divmod(int(index), len(view.pools))
            accelerator = view.pools[column].accelerator
            caps = self.tables.cluster.type_of(accelerator).power_caps if self._sets_caps else ()
            counts, features = view.job_options(row, column)
            fitting = self._fitting(view, row, column, np.array(counts), budget)
            for which in np.flatnonzero(fitting).tolist():
                for cap in range(len(caps) + 1):
                    options.append((Pick(row, column, counts[which]), cap))
                    server = self._server_features(view, accelerator, cap, 0.0)
                    rows.append(np.concatenate([placements[index], features[which], server]))
        if may_wait:
            options.append(None)
            rows.append(np.concatenate([placements[-1], np.zeros(JOB_FEATURES + SERVER_FEATURES)]))
        chosen = options[self._choose(JOINT, np.array(rows, dtype=np.float32), np.ones(len(rows), dtype=bool))]
        if chosen is None:
            return None
        pick, self._picked_caps[view.jobs[chosen[0].row].name] = chosen
        return pick

    def _set_caps(self, board: Board, view: View, before: Mapping[int, set[str]], begun: Mapping[str, Any]) -> None:
        """The caps that were chosen with the jobs; the lowest of all machines where these exceed the limit."""
        picked, self._picked_caps = self._picked_caps, {}
        if not self._sets_caps:
            return
        states = {**board.waiting, **board.running}
        for name, cap in picked.items():
            for machine, _ in states[name].placement or ():
                board.cap(machine, cap)
        if is_over(board):
            for machine in {machine for state in board.running.values() for machine, _ in state.placement or ()}:
                board.cap(machine, self._tightest_cap(machine))


class SingleAgent(Learned):
    """The learned policy with a single agent."""

    agents, planner = SINGLE_AGENT, SinglePlanner
