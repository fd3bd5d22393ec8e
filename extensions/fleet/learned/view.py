"""View of the agents: dimensionless features of every job in every pool of machines that it could run on.

Times are relative to the remaining times of the current jobs, and counts relative to the pools, so that a policy
generalises to loads and clusters of another size.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster, Placement
from shunter.extensions.fleet.job import Conditions, JobState, Need, tightest

MOST_WAITING, MOST_OLDEST, MOST_RUNNING = 40, 8, 48  # jobs that are considered in one decision
PLACEMENT_FEATURES = 25
JOB_FEATURES = 8
SERVER_FEATURES = 7
LARGE = 6.0  # absolute limit of the features
UNUSABLE = np.errstate(divide="ignore", invalid="ignore")  # entries of unusable pools are infinite, and masked later


def deadline_of(state: JobState) -> float:
    """Return the time of a job's deadline; infinite without a deadline."""
    return state.job.arrival_seconds + (inf if state.job.deadline_seconds is None else state.job.deadline_seconds)


class Pool(NamedTuple):
    """Pool of machines of one accelerator type.

    Attributes:
        pace: Relative speed of the slowest machine.
        machines: Indices of the machines, the slowest first.
        accelerators: Number of their accelerators, free or not.
    """

    accelerator: str
    pace: float
    machines: tuple[int, ...]
    accelerators: int


def pools_of(board: Board) -> list[Pool]:
    """Return the pools of live machines: all machines of a type, and during slowdowns also its faster machines.

    A pool contains all later pools of the same type.
    """
    found = []
    for name, machines in board.cluster.machines_of.items():
        there = sorted((i for i in machines if not board.is_down(i)), key=lambda i: (board.speeds[i], i))
        for pace in sorted({board.speeds[i] for i in there}):
            members = tuple(i for i in there if board.speeds[i] >= pace)
            found.append(Pool(name, pace, members, sum(board.cluster.machines[i].count for i in members)))
    return found


def place(board: Board, pool: Pool, accelerators: int, need: Need) -> Placement | None:
    """Return the tightest free placement in a pool, preferring slow machines to fast ones."""
    is_whole = len(pool.machines) == len(board.cluster.machines_of[pool.accelerator])
    if is_whole and all(board.speeds[i] == pool.pace for i in pool.machines):
        return board.place(accelerators, pool.accelerator, need=need)
    fitting = [(board.speeds[i], board.free[i], i) for i in pool.machines if board.room(i, need) >= accelerators]
    if fitting:
        return ((min(fitting)[2], accelerators),)
    return board.fill(accelerators, pool.machines, is_sorted=True, need=need)


class Tables:
    """Constants of a cluster, cached between decisions."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._tightest: dict[tuple[str, int], Conditions] = {}

    def conditions(self, pool: Pool, accelerators: int) -> Conditions:
        """Return the conditions of a consolidated placement in a pool, at the speed of its slowest machine."""
        key = pool.accelerator, accelerators
        if key not in self._tightest:
            self._tightest[key] = tightest(accelerators, self.cluster, pool.accelerator)
        found = self._tightest[key]
        return found if pool.pace == 1.0 else found._replace(speed=pool.pace)


class View:
    """Jobs that can be moved at one moment, and the pools.

    Attributes:
        jobs: Jobs that are considered.
        pools: Pools that they could run on.
        least: Smallest number of accelerators that a job can use, by job and pool.
        held: Index of the narrowest pool that contains a job's machines, by job; -1 while it waits.
        seconds: Remaining time by job and pool, including a move; infinite where the job cannot run.
        scale: Mean remaining time of the jobs, each on its best pool.
        is_empty: True if there are no jobs to decide about.
        left: Accelerators by pool that are unassigned in this decision.
    """

    def __init__(self, board: Board, tables: Tables, fixed: set[str]) -> None:
        self.board, self.tables = board, tables
        self.pools = pools_of(board)
        self.jobs = _considered_jobs(board, fixed)
        for state in self.jobs:
            state.advance_to(board.now)
        types = [pool.accelerator for pool in self.pools]
        self._options = [
            {name: job.work.counts(job.asks(name)) for name in types} for job in (state.job for state in self.jobs)
        ]
        self.held = np.full(len(self.jobs), -1)
        self.left = np.array([float(pool.accelerators) for pool in self.pools])
        self._ends: list[list[tuple[float, int]]] = [[] for _ in self.pools]
        self._taken = np.zeros(len(self.jobs), dtype=bool)
        shape = len(self.jobs), len(self.pools)
        self.counts = np.ones(shape)
        self.seconds = np.full(shape, inf)
        for row, state in enumerate(self.jobs):
            usable = state.job.types(tables.cluster)
            for column, pool in enumerate(self.pools):
                if self.stays(row, column):
                    self.held[row] = column
                if pool.accelerator in usable:  # the requested number, or the next smaller one that the pool has
                    counts = (state.job.asks(pool.accelerator), *reversed(self.options(row, column)))
                    count = next((count for count in counts if count <= pool.accelerators), 0)
                    if count:
                        self.counts[row, column] = count
                        self.seconds[row, column] = self.seconds_at(row, column, count)
        self.least = np.array([[min(of[name]) for name in types] for of in self._options], dtype=float).reshape(shape)
        self.scale = 1.0
        self.is_empty = not self.jobs or not self.pools
        if not self.is_empty:
            self._encode()

    def options(self, row: int, column: int) -> tuple[int, ...]:
        """Return the allowed numbers of accelerators of a job on a pool's type."""
        return self._options[row][self.pools[column].accelerator]

    def seconds_at(self, row: int, column: int, count: int) -> float:
        """Return the remaining time of a job on a number of accelerators of a pool, including its start or move."""
        state = self.jobs[row]
        seconds = state.seconds_left(self.tables.conditions(self.pools[column], count))
        if state.placement is not None and self.stays(row, column) and state.held == count:
            return seconds + state.overhead_left
        return seconds + (state.job.move_seconds if state.starts else state.job.start_seconds)

    def stays(self, row: int, column: int) -> bool:
        """Return True if a job runs within a pool."""
        placement = self.jobs[row].placement
        return placement is not None and all(machine in self.pools[column].machines for machine, _ in placement)

    def take(self, row: int, column: int, count: int, seconds: float) -> None:
        """Assign accelerators of a pool to a job."""
        self._taken[row] = True
        self.occupy(column, count, seconds)

    def occupy(self, column: int, count: int, seconds: float) -> None:
        """Mark accelerators of a pool as unavailable for some time."""
        chosen = self.pools[column]
        for i, pool in enumerate(self.pools):
            if pool.accelerator != chosen.accelerator:
                continue
            if i <= column:  # the wider pools contain this one
                self.left[i] -= count
                self._ends[i].append((seconds, count))
        for i in range(column + 1, len(self.pools)):
            if self.pools[i].accelerator == chosen.accelerator:
                self.left[i] = min(self.left[i], self.left[column])

    def columns_of_machines(self) -> dict[int, int]:
        """Return the index of the narrowest pool of each machine that is up."""
        return {machine: column for column, pool in enumerate(self.pools) for machine in pool.machines}

    def open(self) -> np.ndarray:
        """Return for each job and pool whether the job could get its accelerators there."""
        fits = self.least <= self.left[None, :]
        return np.isfinite(self.seconds) & fits & ~self._taken[:, None]

    @UNUSABLE
    def candidates(self, allowed: np.ndarray) -> np.ndarray:
        """Return features of every job in every pool, (jobs x pools + 1, features); last row: all others wait."""
        jobs, pools = self.seconds.shape
        wait = self._waits()
        alternative = np.min(wait + self.seconds, axis=1, keepdims=True)
        regret = _log(self.seconds / np.maximum(alternative, 1e-9))
        other = np.where(np.eye(pools, dtype=bool)[None], inf, (wait + self.seconds)[:, None, :]).min(axis=2)
        found = np.zeros((jobs * pools + 1, PLACEMENT_FEATURES), dtype=np.float32)
        rows = found[:-1].reshape(jobs, pools, PLACEMENT_FEATURES)
        rows[:, :, : self._static.shape[2]] = self._static
        at = self._static.shape[2]
        waiting = ~self._taken
        rows[:, :, at] = self.left / np.maximum([pool.accelerators for pool in self.pools], 1)
        rows[:, :, at + 1] = (self.left[None, :] - self.counts) / np.maximum(
            [pool.accelerators for pool in self.pools], 1
        )
        rows[:, :, at + 2] = regret
        rows[:, :, at + 3] = _log(self.seconds / np.maximum(other, 1e-9))
        best = np.argmin(wait + self.seconds, axis=1)
        rivals = np.bincount(best[waiting], minlength=pools)
        rows[:, :, at + 4] = np.log1p(rivals)[None, :] / 2
        rows[:, :, at + 5] = np.log1p(waiting.sum()) / 3
        found[-1, at + 5] = np.log1p(waiting.sum()) / 3
        found[-1, at + 6] = 1.0
        if allowed[:-1].any():
            found[-1, at + 2] = regret.reshape(-1)[allowed[:-1]].min()
        return np.nan_to_num(np.clip(found, -LARGE, LARGE), nan=0.0)

    def job_options(self, row: int, column: int) -> tuple[list[int], np.ndarray]:
        """Return the numbers of accelerators that a job can get in a pool now, with their features."""
        counts = [count for count in self.options(row, column) if count <= self.left[column]]
        return counts, np.array([self.job_features(row, column, count) for count in counts], dtype=np.float32)

    def job_features(self, row: int, column: int, count: int) -> list[float]:
        """Return the features of one number of accelerators for a job."""
        state, pool = self.jobs[row], self.pools[column]
        nominal = self.counts[row, column]
        seconds, base = self.seconds_at(row, column, count), self.seconds[row, column]
        unpicked = float((~self._taken).sum())
        return [
            float(np.clip(np.log(max(seconds, 1e-6) / max(base, 1e-6)), -LARGE, LARGE)),
            float(np.clip(np.log(max(seconds * count, 1e-6) / max(base * nominal, 1e-6)), -LARGE, LARGE)),
            count / pool.accelerators,
            float(self.left[column] - count) / pool.accelerators,
            np.log1p(unpicked) / 3,
            float(unpicked * np.mean(self.least) <= self.left[column] - count),
            float(state.placement is not None and state.held == count),
            float(np.clip(np.log(max(base, 1e-6) / self.scale), -LARGE, LARGE)),
        ]

    def _waits(self) -> np.ndarray:
        """Return the waiting time until enough accelerators are free, by job and pool, given the decisions so far."""
        found = np.zeros(self.seconds.shape)
        for column, ends in enumerate(self._ends):
            short = self.counts[:, column] > self.left[column]
            if not short.any():
                continue
            if not ends:
                found[short, column] = inf
                continue
            ends.sort()
            free = self.left[column] + np.cumsum([count for _, count in ends])
            index = np.searchsorted(free, self.counts[:, column])
            moments = np.append([seconds for seconds, _ in ends], inf)
            found[:, column] = np.where(short, moments[np.minimum(index, len(ends))], 0.0)
        return found

    @UNUSABLE
    def _encode(self) -> None:
        """Compute the features that do not change during a decision."""
        seconds, board = self.seconds, self.board
        jobs, pools = seconds.shape
        sizes = np.array([pool.accelerators for pool in self.pools], dtype=float)
        best = seconds.min(axis=1)
        finite = best[np.isfinite(best)]
        self.scale = max(float(finite.mean()) if len(finite) else 1.0, 1e-6)
        service = np.where(np.isfinite(seconds), seconds, 0.0) * self.counts
        least = np.where(np.isfinite(seconds), seconds * self.counts, inf).min(axis=1)
        kinds = [self.tables.cluster.type_of(pool.accelerator) for pool in self.pools]
        joules = seconds * self.counts * np.array([max(kind.busy_watts - kind.idle_watts, 1.0) for kind in kinds])
        prices = seconds * self.counts * np.array([kind.price_per_hour or 1.0 for kind in kinds])
        demand = np.zeros(pools)
        for row in range(jobs):
            if np.isfinite(best[row]):
                column = int(np.argmin(seconds[row]))
                demand[column] += service[row, column]
        pressure = np.log1p(demand / np.maximum(sizes, 1) / self.scale)
        slowdown = _log(seconds / best[:, None])
        usable = np.isfinite(seconds)
        advantage = slowdown - np.where(usable, slowdown, 0.0).sum(axis=0) / np.maximum(usable.sum(axis=0), 1)
        ages = np.array([board.now - state.job.arrival_seconds for state in self.jobs])
        moves = np.array([state.job.move_seconds if state.starts else 0.0 for state in self.jobs])
        slack = np.array([deadline_of(state) - board.now for state in self.jobs])
        order = np.argsort(np.argsort(least)) / max(jobs - 1, 1)
        columns = np.arange(pools)[None, :]
        per_job = [
            _log(best / self.scale),
            _log(least / max(float(np.mean(least[np.isfinite(least)])), 1e-6)) if len(finite) else best,
            order,
            np.log1p(np.maximum(ages, 0) / self.scale) / 2,
            np.log1p(moves / self.scale),
            np.clip((slack - best) / self.scale, -2, 4),
            (self.held >= 0).astype(float),
        ]
        per_pair = [
            _log(seconds / self.scale),
            slowdown,
            _log(service / max(float(np.mean(least[np.isfinite(least)])), 1e-6)) if len(finite) else seconds,
            np.clip(self.counts / np.maximum(sizes, 1), 0, 1),
            (self.held[:, None] == columns).astype(float),
            advantage,
            _log(joules / joules.min(axis=1, keepdims=True)),
            _log(prices / prices.min(axis=1, keepdims=True)),
        ]
        per_pool = [pressure, pressure - pressure.mean(), np.array([p.pace for p in self.pools])]
        stacked = [
            *(np.broadcast_to(values[:, None], (jobs, pools)) for values in per_job),
            *per_pair,
            *(np.broadcast_to(values[None, :], (jobs, pools)) for values in per_pool),
        ]
        self._static = np.nan_to_num(
            np.clip(np.stack(stacked, axis=2), -LARGE, LARGE), nan=0.0, posinf=LARGE, neginf=-LARGE
        ).astype(np.float32)


def _considered_jobs(board: Board, fixed: set[str]) -> list[JobState]:
    """Return the jobs to consider; if there are many, those that run longest, wait longest or have least work left."""
    running = [state for state in board.running.values() if state.name not in fixed]
    waiting = [state for state in board.waiting.values() if state.name not in fixed]
    if len(running) > MOST_RUNNING:
        running = sorted(running, key=lambda state: (-state.end, state.name))[:MOST_RUNNING]
    if len(waiting) > MOST_WAITING + MOST_OLDEST:

        def service_left(state: JobState) -> tuple[float, str]:
            ideal = state.job.ideal(board.cluster)
            return state.seconds_left(ideal) * state.job.asks(ideal.accelerator), state.name

        waiting = waiting[:MOST_OLDEST] + sorted(waiting[MOST_OLDEST:], key=service_left)[:MOST_WAITING]
    return running + waiting


def _log(values: np.ndarray) -> np.ndarray:
    return np.clip(np.log(np.maximum(values, 1e-9)), -LARGE, LARGE)
