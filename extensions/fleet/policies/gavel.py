"""Gavel (Narayanan et al., OSDI 2020): shares of time on each accelerator type, kept to by rounds."""

import random
from collections import defaultdict

import numpy as np

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.role import alone
from shunter.extensions.fleet.policies.shares import ShareRule

ROUND_SECONDS = 360.0
FEWEST_SECONDS = 1920.0  # between two computations of the shares
NEVER_RUN = 1e9  # priority of a job that has had nothing of its share, times the share


class Gavel:
    """In each round the jobs that lag most behind their shares run, type by type; what is left goes to the others.

    Args:
        name: See `Policy.name`.
        rule: Decides the shares.
        seed: For a rule that is blind to types, of the order in which they are handed out; None for the order of the
            cluster, the first of which everyone would get more of.
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
        """See `Policy.decide`."""
        states = {state.name: state for state in (*board.running.values(), *board.waiting.values())}
        self._count_received(board)
        self._renew(states, board)
        chosen = self._choose(states, board)
        _move(chosen, board)

    def _count_received(self, board: Board) -> None:
        """Time that each job has had on each type since the shares were computed."""
        for state in board.running.values():
            if state.conditions is not None and state.name in self._received:
                since = max(state.started_at, self._last_round)
                self._received[state.name][state.conditions.accelerator] += board.now - since
        self._last_round = board.now

    def _renew(self, states: dict[str, JobState], board: Board) -> None:
        """Compute the shares anew if jobs have come or gone, but not at every round."""
        names = frozenset(states)
        if names == self._computed_for or board.now - self._computed_at < FEWEST_SECONDS:
            for name in names - self._shares.keys():  # until then newcomers take what is left
                self._shares[name] = dict.fromkeys(board.cluster.types, 0.0)
                self._received[name] = dict.fromkeys(board.cluster.types, ROUND_SECONDS / 2)
            return
        jobs, types = list(states.values()), board.cluster.types
        rates, left = progress_rates(jobs, board)
        shares = self._rule(
            rates,
            left,
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
        """The type of each job that runs in the next round."""
        given: dict[str, float] = defaultdict(float)
        for received in (self._received[name] for name in states):
            for accelerator, seconds in received.items():
                given[accelerator] += seconds
        chosen: dict[str, str] = {}
        left = board.there()
        for state in states.values():  # who may not be stopped stays
            if state.placement is not None and not state.job.preemptible:
                held = board.cluster.machines[state.placement[0][0]].accelerator
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
    """First come, first served, each on the fastest type that is free; in each round anew, so that jobs move up."""

    name = "gavel-fifo-perf"
    round_seconds: float | None = ROUND_SECONDS

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        states = sorted(
            (*board.running.values(), *board.waiting.values()),
            key=lambda state: (state.job.arrival_seconds, state.name),
        )
        states.sort(key=lambda state: state.placement is None or state.job.preemptible)
        left, chosen = board.there(), {}
        for state in states:
            types = state.job.types(board.cluster)
            if state.placement is not None and not state.job.preemptible:
                types = (board.cluster.machines[state.placement[0][0]].accelerator,)
            fitting = [name for name in types if left[name] >= state.job.asks(name)]
            if not fitting:
                break
            chosen[state.name] = fitting[0]
            left[fitting[0]] -= state.job.asks(fitting[0])
        _move(chosen, board)


def progress_rates(jobs: list[JobState], board: Board) -> tuple[np.ndarray, np.ndarray]:
    """Progress a second of each job on each type, side by side, and what each has left; all of a job's work is 1."""
    rates = np.zeros((len(jobs), len(board.cluster.types)))
    left = np.ones(len(jobs))
    for row, state in enumerate(jobs):
        usable = state.job.types(board.cluster)
        for column, name in enumerate(board.cluster.types):
            if name in usable and board.cluster.count_of[name] >= state.job.asks(name):
                rates[row, column] = 1.0 / max(alone(state, board, name), 1e-6)
    return rates, left


def _move(chosen: dict[str, str], board: Board) -> None:
    """Let the chosen jobs run on their types and all others wait; who is on the right type stays where it is."""
    for state in list(board.running.values()):
        assert state.placement is not None
        held = board.cluster.machines[state.placement[0][0]].accelerator
        if chosen.get(state.name) != held:
            board.stop(state)
    waiting = [state for state in board.waiting.values() if state.name in chosen]
    for state in sorted(waiting, key=lambda state: -state.job.asks(chosen[state.name])):
        on = chosen[state.name]
        placement = board.place(state.job.asks(on), on, need=state.job.need(on))
        if placement is not None:
            board.start(state, placement)
