"""Gavel (Narayanan et al., OSDI 2020): each job gets a share of time on each accelerator type, realised in rounds."""

import random
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.role import alone, run_picked

Shares = np.ndarray
"""Fraction of time that each job (row) should spend on each accelerator type (column)."""

ShareRule = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Shares]
"""Function from rates, demands, weights and capacities to shares.

Rates are the share of its remaining work that each job does per second on each type (0: it cannot run there). Demands
are the accelerators that each job (row) needs on each type (column).
"""


def max_min(rates: np.ndarray, demand: np.ndarray, weight: np.ndarray, capacity: np.ndarray) -> Shares:
    """Return max-min fair shares that ignore types: all jobs get equal time, on any accelerator."""
    return _largest_least((rates > 0) * demand / weight[:, None], demand, capacity, rates)


def max_min_heterogeneous(rates: np.ndarray, demand: np.ndarray, weight: np.ndarray, capacity: np.ndarray) -> Shares:
    """Return max-min fair shares of progress; each job's unit is its progress on an equal part of the cluster."""
    equal = rates @ (capacity / capacity.sum())
    return _largest_least(rates / equal[:, None] * demand / weight[:, None], demand, capacity, rates)


def min_makespan(rates: np.ndarray, demand: np.ndarray, weight: np.ndarray, capacity: np.ndarray) -> Shares:
    """Return the shares of time with which the last job ends earliest."""
    return _largest_least(rates, demand, capacity, rates)


def _largest_least(gains: np.ndarray, demand: np.ndarray, capacity: np.ndarray, rates: np.ndarray) -> Shares:
    """Return shares that maximise the smallest gain of a job and, among these, the sum of the gains.

    `gains` is the gain per unit of time of each job on each type. A first linear program maximises the smallest gain.
    A second one then maximises the sum, because the first alone assigns unneeded time arbitrarily.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack, vstack

    jobs, types = gains.shape
    scaled = gains / gains.max()
    cells = np.arange(jobs * types)
    time = csr_array((np.ones(cells.size), (cells // types, cells)), shape=(jobs, cells.size))
    held = csr_array((demand.ravel(), (cells % types, cells)), shape=(types, cells.size))
    gained = csr_array((scaled.ravel(), (cells // types, cells)), shape=(jobs, cells.size))
    bounds = [(0.0, 1.0 if rate > 0 else 0.0) for rate in rates.ravel()]
    limits = np.concatenate([np.ones(jobs), capacity])
    least_column = csr_array(np.concatenate([np.zeros(jobs + types), np.ones(jobs)])[:, None])
    matrix = hstack([vstack([time, held, -gained]), least_column]).tocsr()
    goal = np.zeros(cells.size + 1)
    goal[-1] = -1.0
    first = linprog(
        goal, A_ub=matrix, b_ub=np.concatenate([limits, np.zeros(jobs)]), bounds=[*bounds, (0.0, None)], method="highs"
    )
    assert first.success, f"no shares: {first.message}"
    least = -first.fun * (1 - 1e-7)
    relative = scaled / np.maximum(scaled.max(axis=1, keepdims=True), 1e-12)
    second = linprog(
        -relative.ravel(),
        A_ub=vstack([time, held, -gained]).tocsr(),
        b_ub=np.concatenate([limits, np.full(jobs, -least)]),
        bounds=bounds,
        method="highs",
    )
    found = second.x if second.success else first.x[:-1]
    return np.clip(found.reshape(jobs, types), 0.0, 1.0)


ROUND_SECONDS = 360.0
FEWEST_SECONDS = 1920.0  # between two computations of the shares
NEVER_RUN = 1e9  # priority per share of a job that has not run yet


class Gavel:
    """Policy that runs in each round the jobs furthest behind their shares; other jobs get the remaining accelerators.

    Args:
        name: See `Policy.name`.
        rule: Computes the shares.
        seed: For rules that ignore types: seed of the random order in which types are assigned. None uses the order of
            the cluster, whose first type would be preferred.
    """

    round_seconds: float | None = ROUND_SECONDS

    def __init__(self, name: str, rule: ShareRule, seed: int | None = None) -> None:
        self.name = name
        self._rule = rule
        self._order = None if seed is None else random.Random(seed)
        self._shares: dict[str, dict[str, float]] = {}
        self._computed_for: frozenset[str] = frozenset()
        self._computed_at = -FEWEST_SECONDS
        self._received: dict[str, dict[str, float]] = {}
        self._last_round = 0.0

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        states = {state.name: state for state in (*board.running.values(), *board.waiting.values())}
        for state in board.running.values():  # the time that each job has had since the shares were computed
            if state.conditions is not None and state.name in self._received:
                since = max(state.started_at, self._last_round)
                self._received[state.name][state.conditions.accelerator] += board.now - since
        self._last_round = board.now
        self._renew(states, board)
        chosen = self._choose(states, board)
        run_picked({name: (on, states[name].job.asks(on)) for name, on in chosen.items()}, board)

    def _renew(self, states: dict[str, JobState], board: Board) -> None:
        """Recompute the shares if jobs have arrived or ended and the last computation is old enough."""
        names = frozenset(states)
        if names == self._computed_for or board.now - self._computed_at < FEWEST_SECONDS:
            for name in names - self._shares.keys():  # until then new jobs get the remaining accelerators
                self._shares[name] = dict.fromkeys(board.cluster.types, 0.0)
                self._received[name] = dict.fromkeys(board.cluster.types, ROUND_SECONDS / 2)
            return
        jobs, types = list(states.values()), board.cluster.types
        rates = np.zeros((len(jobs), len(types)))
        for row, state in enumerate(jobs):
            usable = state.job.types(board.cluster)
            for column, name in enumerate(types):
                if name in usable and board.cluster.count_of[name] >= state.job.asks(name):
                    rates[row, column] = 1.0 / max(alone(state, board, name), 1e-6)
        shares = self._rule(
            rates,
            np.array([[float(state.job.asks(name)) for name in types] for state in jobs]),
            np.array([state.job.weight for state in jobs]),
            np.array([float(board.cluster.count_of[name]) for name in types]),
        )
        self._shares = {
            state.name: dict(zip(types, map(float, row), strict=True)) for state, row in zip(jobs, shares, strict=True)
        }
        self._received = {state.name: dict.fromkeys(types, ROUND_SECONDS / 2) for state in jobs}
        self._computed_for, self._computed_at = names, board.now

    def _choose(self, states: dict[str, JobState], board: Board) -> dict[str, str]:
        """Return the type of each job that runs in the next round."""
        given: dict[str, float] = defaultdict(float)
        for received in (self._received[name] for name in states):
            for accelerator, seconds in received.items():
                given[accelerator] += seconds
        chosen: dict[str, str] = {}
        left = board.live_counts()
        for state in states.values():  # jobs that cannot be stopped stay
            held = board.current_type(state)
            if held is not None and not state.job.preemptible:
                chosen[state.name] = held
                left[held] -= state.job.asks(held)
        types = list(board.cluster.types)
        if self._order is not None:
            self._order.shuffle(types)
        for accelerator in types:
            entries = []
            for state in states.values():
                if state.name in chosen or accelerator not in state.job.types(board.cluster):
                    continue
                share, had = self._shares[state.name][accelerator], self._received[state.name][accelerator]
                priority = share * NEVER_RUN if had <= 0 or not given[accelerator] else share * given[accelerator] / had
                entries.append((-priority, -share, state.job.arrival_seconds, state.name))
            for *_, name in sorted(entries):
                asked = states[name].job.asks(accelerator)
                if asked <= left[accelerator]:
                    chosen[name] = accelerator
                    left[accelerator] -= asked
        return chosen


class GavelFifo:
    """First come, first served on the fastest free type; repeated in each round, so that jobs move to faster types."""

    name = "gavel-fifo-perf"
    round_seconds: float | None = ROUND_SECONDS

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        states = sorted(
            (*board.running.values(), *board.waiting.values()),
            key=lambda state: (state.job.arrival_seconds, state.name),
        )
        states.sort(key=lambda state: state.placement is None or state.job.preemptible)
        left, picks = board.live_counts(), {}
        for state in states:
            held = board.current_type(state)
            types = state.job.types(board.cluster) if held is None or state.job.preemptible else (held,)
            fitting = [name for name in types if left[name] >= state.job.asks(name)]
            if not fitting:
                break
            picks[state.name] = fitting[0], state.job.asks(fitting[0])
            left[fitting[0]] -= state.job.asks(fitting[0])
        run_picked(picks, board)
