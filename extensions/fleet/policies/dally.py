"""Dally (Sharma et al., arXiv 2401.16492): jobs wait for network-efficient placements, and are later moved to them."""

from collections import defaultdict, deque
from functools import partial
from math import inf
from statistics import fmean, pstdev
from typing import NamedTuple

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import MACHINE, NETWORK, RACK
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.dally_moves import Mover
from shunter.extensions.fleet.policies.dally_reservation import Reservation, overdue, reserve
from shunter.extensions.fleet.policies.role import by_priority, fastest_place

HOUR = 3600.0
WINDOW_SECONDS, WINDOW_WAITS = 24 * HOUR, 50
FEWEST_WAITS = 3  # below this, the first timers apply


class Timers(NamedTuple):
    """Waiting times of a job before it accepts looser placements.

    Attributes:
        machine_seconds: Time during which the job accepts only placements within one machine.
        rack_seconds: Time during which the job accepts only placements within one rack; later the job accepts any
            placement.
    """

    machine_seconds: float
    rack_seconds: float


NEVER_WAIT = Timers(0.0, 0.0)
WAIT_FOR_EVER = Timers(inf, inf)
USUAL_TIMERS = Timers(HOUR, 2 * HOUR)


class FixedTimers:
    """Constant timers: zero for jobs that never wait, infinite for jobs that insist."""

    def __init__(self, timers: Timers = USUAL_TIMERS) -> None:
        assert 0 <= timers.machine_seconds <= timers.rack_seconds, f"timers {timers} go backwards"
        self._timers = timers

    def timers(self, accelerators: int, now: float) -> Timers:
        """Return the timers of a job with this number of accelerators."""
        return self._timers

    def record(self, accelerators: int, level: int, waited_seconds: float, now: float) -> None:
        """Record how long a job has waited since its first offer, and the level of its placement."""


class AutoTuner(FixedTimers):
    """Timers from recent waiting times: mean plus two standard deviations, by number of accelerators.

    Numbers of accelerators with the same next power of two are grouped. The waits of the last 24 hours count, at most
    50; with fewer than three the timers given at first apply.
    """

    def __init__(self, timers: Timers = USUAL_TIMERS) -> None:
        super().__init__(timers)
        self._waits: dict[tuple[int, int], deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=WINDOW_WAITS))

    def timers(self, accelerators: int, now: float) -> Timers:
        """Return the timers of a job with this number of accelerators."""
        machine, rack = self._timers
        machine = self._timer(accelerators, MACHINE, machine, now)
        return Timers(machine, max(machine, self._timer(accelerators, RACK, rack, now)))

    def record(self, accelerators: int, level: int, waited_seconds: float, now: float) -> None:
        """Record how long a job has waited since its first offer, and the level of its placement."""
        self._waits[_bucket(accelerators), level].append((now, waited_seconds))

    def _timer(self, accelerators: int, level: int, first: float, now: float) -> float:
        waits = [wait for at, wait in self._waits[_bucket(accelerators), level] if now - at <= WINDOW_SECONDS]
        return first if len(waits) < FEWEST_WAITS else min(fmean(waits) + 2 * pstdev(waits), 24 * HOUR)


def _bucket(accelerators: int) -> int:
    """Return the smallest power of two that is not below the number of accelerators."""
    return 1 << (accelerators - 1).bit_length()


class Delayed:
    """Delay scheduling: a job may decline a placement that is too spread out until its timers have expired.

    A job's timers start at the first offer that it could use, not at its arrival: under load they would otherwise
    expire before the first offer. A waiting job blocks no other jobs, unless machines are reserved for it.

    Args:
        name: See `Policy.name`.
        tuner: Sets the timers.
        mover: Moves running jobs to better placements; None to disable this.
        reserves: If True, machines are reserved for the job that would end last.
    """

    round_seconds: float | None = None

    def __init__(self, name: str, tuner: FixedTimers, mover: Mover | None = None, *, reserves: bool = False) -> None:
        self.name, self._reserves = name, reserves
        self._tuner, self._mover = tuner, mover
        self._first_offers: dict[str, float] = {}

    def decide(self, board: Board) -> float | None:
        """Start, stop and move jobs."""
        self._fill(board)
        if self._mover is not None and self._mover.improve(board):
            self._fill(board)
        if not board.waiting:
            return None
        moments = [
            self._first_offers[name] + timer
            for name, state in board.waiting.items()
            if name in self._first_offers
            for count in {state.job.asks(on) for on in state.job.types(board.cluster)}
            for timer in self._tuner.timers(count, board.now)
        ]
        return min((moment for moment in moments if board.now < moment < inf), default=None)

    def _fill(self, board: Board) -> None:
        """Offer free accelerators to all waiting jobs by priority, then arrival; a stopped job keeps its rank."""
        kept: Reservation | None = None
        for state in overdue(board) if self._reserves else ():
            if not self._offer(state, board):
                kept = reserve(state, board)
                break
        oldest_first = sorted(board.waiting.values(), key=lambda state: state.job.arrival_seconds)
        for state in by_priority(oldest_first, board):
            self._offer(state, board, kept)

    def _offer(self, state: JobState, board: Board, kept: Reservation | None = None) -> bool:
        """Offer a job the free accelerators that are not reserved for another one; return True if it was started."""
        job = state.job
        if not any(board.free_of[name] >= job.asks(name) for name in job.types(board.cluster)):
            return False
        offered = self._first_offers.setdefault(state.name, board.now)
        worst_level = partial(self._worst_level, state, board, offered)
        placement = fastest_place(state, board, worst_level)
        if kept is not None and placement is not None and not kept.allows(state, placement, board):
            placement = fastest_place(state, board, worst_level, without=kept.machines)
        if placement is None:
            return False
        if kept is not None:
            kept.note(state, placement, board)
        board.start(state, placement)
        level = board.cluster.level(placement)
        self._tuner.record(state.held, level, board.now - offered, board.now)
        del self._first_offers[state.name]
        return True

    def _worst_level(self, state: JobState, board: Board, offered: float, accelerator: str) -> int:
        """Return the loosest level that a job accepts, given the time of its first offer."""
        asked = state.job.asks(accelerator)
        timers = self._tuner.timers(asked, board.now)
        best = state.job.best_level(board.cluster, accelerator)
        if board.now >= offered + timers.rack_seconds:
            return NETWORK
        return max(best, RACK) if board.now >= offered + timers.machine_seconds else best
