"""Decisions of three agents in sequence, which share one view of the cluster; each has its own candidates.

    placement   the pool of one job after another, or that all remaining jobs wait; running jobs may stop or move
    job         the number of accelerators of an elastic job (its batch size follows)
    server      the power cap of each machine whose jobs have changed

Choices that would break a limit are masked: memory, the power limit, promised deadlines.
"""

from dataclasses import dataclass

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.learned.networks import Chooser
from shunter.extensions.fleet.learned.objectives import Objective, watts
from shunter.extensions.fleet.learned.promises import Promises, added_watts, is_over
from shunter.extensions.fleet.learned.view import (
    JOB_FEATURES,
    MOST_OLDEST,
    MOST_WAITING,
    PLACEMENT_FEATURES,
    SERVER_FEATURES,
    Tables,
    View,
    place,
)

PLACEMENT, JOB, SERVER = "placement", "job", "server"
AGENTS = {PLACEMENT: PLACEMENT_FEATURES, JOB: JOB_FEATURES, SERVER: SERVER_FEATURES}


@dataclass(frozen=True, slots=True)
class Pick:
    """Choice for one job: a number of accelerators of a pool, by the rows and columns of a `View`."""

    row: int
    column: int
    count: int


class Planner:
    """Planner that makes the decisions for one cluster.

    Args:
        chooser: Chooser among the candidates.
        tables: Cached constants of the cluster.
        objective: Objective to minimise; power caps are chosen only if power matters.

    Attributes:
        tables: Cached constants, which may change to other accelerator counts of the same machines.
    """

    def __init__(self, chooser: Chooser, tables: Tables, objective: Objective) -> None:
        self._chooser, self.tables = chooser, tables
        cluster = tables.cluster
        has_caps = any(cluster.type_of(name).power_caps for name in cluster.types)
        self._sets_caps = has_caps and (objective == "energy" or cluster.power_limit_watts is not None)
        self.promises = Promises()

    def decide(self, board: Board) -> float | None:
        """Move jobs and set caps; return the time of the next decision.

        One pass considers a limited number of jobs (`MOST_WAITING`). If there are more, further passes consider the
        others as long as there is room and each pass starts some jobs. Later passes do not change running jobs.
        """
        waited, most = len(board.waiting), MOST_WAITING + MOST_OLDEST
        again, left_out = self._look(board, set()), waited > most
        while left_out and any(board.free):
            waited = len(board.waiting)
            left_out = waited > most
            again = self._look(board, set(board.running))
            if len(board.waiting) >= waited:
                break
        return again

    def _look(self, board: Board, settled: set[str]) -> float | None:
        """Start, stop and move the jobs of one pass, except those named in `settled`.

        Returns:
            Time at which the next promised reservation begins; None if there is none.
        """
        self.promises.renew(board)
        begun = self.promises.begun(board)
        for name in begun:
            if name in board.running:
                self.promises.settle(board.running[name], board)
        begun = self.promises.begun(board)
        fixed = {state.name for state in board.running.values() if not state.job.preemptible} | set(begun)
        fixed |= settled
        view = View(board, self.tables, fixed)
        looked_at = {state.name for state in view.jobs}
        kept = [state for state in board.running.values() if state.name not in looked_at and state.name not in begun]
        for i, column in view.columns_of_machines().items():  # neither kept jobs nor begun reservations give way
            count = sum(n for state in kept for machine, n in state.placement or () if machine == i)
            count += sum(one.accelerators for one in begun.values() if one.machine == i)
            if count:
                view.occupy(column, count, view.scale)
        before = _occupants(board)
        picks = self._pick(view, kept, begun)
        started = self._carry_out(board, view, picks, begun)
        self._set_caps(board, view, before, begun)
        while is_over(board) and started:  # a slow machine may have lost its cap: the last started jobs stop
            state = started.pop()
            if state.name in board.running and state.name not in begun and state.job.preemptible:
                board.stop(state)
        return self.promises.next_begin(board)

    def _pick(self, view: View, kept: list[JobState], begun: dict) -> list[Pick]:
        picks: list[Pick] = []
        if view.is_empty:
            return picks
        cluster, budget = view.board.cluster, np.inf
        if cluster.power_limit_watts is not None:  # watts above idle power that are left for the jobs of this decision
            rest = sum(cluster.type_of(machine.accelerator).idle_watts * machine.count for machine in cluster.machines)
            held = sum(added_watts(cluster, i, n) for state in kept for i, n in state.placement or ())
            held += sum(added_watts(cluster, one.machine, one.accelerators) for one in begun.values())
            budget = cluster.power_limit_watts - rest - held
        while True:
            allowed = self._allowed(view, budget)
            if not allowed.any():
                return picks
            pick = self._pick_one(view, allowed, budget, may_wait=bool(kept or begun or picks))
            if pick is None:
                return picks
            picks.append(pick)
            view.take(pick.row, pick.column, pick.count, view.seconds_at(pick.row, pick.column, pick.count))
            budget -= self._least_watts(view, pick.row, pick.column) * pick.count

    def _pick_one(self, view: View, allowed: np.ndarray, budget: float, *, may_wait: bool) -> Pick | None:
        """Return the next job with its pool and accelerators, chosen by two agents; None if the remaining jobs wait."""
        with_wait = np.append(allowed.reshape(-1), may_wait)
        index = self._choose(PLACEMENT, view.candidates(with_wait), with_wait)
        if index == allowed.size:
            return None
        row, column = divmod(index, len(view.pools))
        if len(options := view.options(row, column)) == 1:
            return Pick(row, column, options[0])
        counts, features = view.job_options(row, column)
        fitting = self._fitting(view, row, column, np.array(counts), budget)
        return Pick(row, column, counts[self._choose(JOB, features, fitting)])

    def _choose(self, agent: str, candidates: np.ndarray, allowed: np.ndarray) -> int:
        """Let an agent choose among the allowed candidates; a single candidate needs no agent."""
        may = np.flatnonzero(allowed)
        return int(may[0] if len(may) == 1 else may[self._chooser.choose(agent, candidates[may])])

    def _allowed(self, view: View, budget: float) -> np.ndarray:
        """Return for each job and pool whether placing the job there keeps every limit."""
        allowed = view.open()
        future = [one for name, one in self.promises.kept.items() if one.begin_seconds > view.board.now]
        has_limit = view.board.cluster.power_limit_watts is not None
        for row, state in enumerate(view.jobs):
            if not state.job.preemptible and (state.name in self.promises.kept or future):
                allowed[row] = False  # it could not be stopped when a reservation begins
            elif has_limit and allowed[row].any():
                for column in np.flatnonzero(allowed[row]):
                    if self._least_watts(view, row, int(column)) * view.least[row, column] > budget * (1 + 1e-12):
                        allowed[row, column] = False
        return allowed

    def _fitting(self, view: View, row: int, column: int, counts: np.ndarray, budget: float) -> np.ndarray:
        """Return the mask of allowed numbers of accelerators; only the requested one for a promised deadline."""
        state = view.jobs[row]
        exact = counts == state.job.asks(view.pools[column].accelerator)
        if state.name in self.promises.kept and exact.any():
            return exact
        return counts * self._least_watts(view, row, column) <= budget * (1 + 1e-12)

    def _least_watts(self, view: View, row: int, column: int) -> float:
        """Return the watts that an accelerator of a pool adds, under the lowest cap if the job is preemptible."""
        kind = self.tables.cluster.type_of(view.pools[column].accelerator)
        share = 1.0
        if self._sets_caps and view.jobs[row].job.preemptible:
            share = min([1.0, *(cap.power_share for cap in kind.power_caps)])
        return max(kind.busy_watts * share - kind.idle_watts, 0.0)

    @staticmethod
    def _carry_out(board: Board, view: View, picks: list[Pick], begun: dict) -> list[JobState]:
        """Place the chosen jobs; a running job keeps its machines if they are in its pool. Return the running ones."""
        picked = {view.jobs[pick.row].name: pick for pick in picks}
        left = [
            machine.count - sum(one.accelerators for one in begun.values() if one.machine == i)
            for i, machine in enumerate(board.cluster.machines)
        ]
        looked_at = {state.name for state in view.jobs}
        running = sorted(board.running.values(), key=lambda state: (state.name in looked_at, state.name))
        for state in running:
            assert state.placement is not None
            pick, one = picked.get(state.name), begun.get(state.name)
            if one is not None:
                stays = state.placement == ((one.machine, one.accelerators),)
            else:
                stays = state.name not in looked_at or (
                    pick is not None
                    and view.stays(pick.row, pick.column)
                    and state.held == pick.count
                    and all(left[machine] >= count for machine, count in state.placement)
                )
                for machine, count in state.placement if stays else ():
                    left[machine] -= count
            if not stays:
                board.stop(state)
        for name, one in begun.items():
            if name in board.waiting:
                board.start(board.waiting[name], ((one.machine, one.accelerators),))
        started = []
        for pick in sorted(picks, key=lambda pick: (-pick.column, -pick.count)):
            state = view.jobs[pick.row]
            if state.name in board.waiting:
                pool = view.pools[pick.column]
                placement = place(board, pool, pick.count, state.job.need(pool.accelerator))
                if placement is not None:
                    board.start(state, placement)
            if state.name in board.running:
                started.append((picks.index(pick), state))
        return [state for _, state in sorted(started, key=lambda one: one[0])]

    def _set_caps(self, board: Board, view: View, before: dict[int, set[str]], begun: dict) -> None:
        """Choose the power cap of each machine whose jobs have changed, or of all machines above the power limit."""
        if not self._sets_caps:
            return
        occupants = _occupants(board)
        promised = {one.machine for one in begun.values()}
        locked = {
            i for i, names in occupants.items()
            if i in promised or any(not board.running[name].job.preemptible for name in names)
        }  # fmt: skip
        for i in locked:
            board.cap(i, 0)
        changed = [i for i, names in occupants.items() if i not in locked and names != before.get(i)]
        if is_over(board):
            changed = [i for i in occupants if i not in locked]
            for i in changed:
                board.cap(i, self._tightest_cap(i))
        for i in changed:
            board.cap(i, self._choose_cap(board, view, i))

    def _choose_cap(self, board: Board, view: View, machine: int) -> int:
        name = board.cluster.machines[machine].accelerator
        kind = board.cluster.type_of(name)
        held, limit = board.cluster.machines[machine].count - board.free[machine], board.cluster.power_limit_watts
        others = watts(board) - kind.busy_watts * kind.cap(board.caps[machine])[0] * held
        levels = range(len(kind.power_caps) + 1)
        drawn = [others + kind.busy_watts * kind.cap(level)[0] * held for level in levels]
        allowed = np.array([limit is None or watt <= limit for watt in drawn])
        if not allowed.any():
            return self._tightest_cap(machine)
        share = held / board.cluster.machines[machine].count
        rows = [self._server_features(view, name, level, share) for level in levels]
        return self._choose(SERVER, np.array(rows, dtype=np.float32), allowed)

    def _server_features(self, view: View, accelerator: str, level: int, share: float) -> np.ndarray:
        """Return the features, `[7]`, of one power cap for a machine with a share of busy accelerators."""
        kind, board = self.tables.cluster.type_of(accelerator), view.board
        power, speed = kind.cap(level)
        limit = board.cluster.power_limit_watts
        spare = 1.0 if limit is None else (limit - watts(board)) / limit
        waiting = np.log1p(len(board.waiting)) / 3
        return np.array([power, speed, power / speed, share, np.clip(spare, -1, 1), waiting, float(level == 0)])

    def _tightest_cap(self, machine: int) -> int:
        kind = self.tables.cluster.type_of(self.tables.cluster.machines[machine].accelerator)
        return min(range(len(kind.power_caps) + 1), key=lambda level: kind.cap(level)[0])


def _occupants(board: Board) -> dict[int, set[str]]:
    """Return the names of the jobs by machine, for machines with jobs."""
    found: dict[int, set[str]] = {}
    for state in board.running.values():
        for machine, _ in state.placement or ():
            found.setdefault(machine, set()).add(state.name)
    return dict(sorted(found.items()))
