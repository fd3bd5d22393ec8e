"""Dally (Sharma et al., arXiv 2401.16492): jobs wait for network-efficient placements, and are later moved to them."""

from math import inf

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import NETWORK, RACK, Placement
from shunter.extensions.fleet.job import JobState
from shunter.extensions.fleet.policies.dally_moves import Mover
from shunter.extensions.fleet.policies.dally_reservation import Reservation, overdue, reserve
from shunter.extensions.fleet.policies.dally_timers import (
    NEVER_WAIT,
    WAIT_FOR_EVER,
    AutoTuner,
    FixedTimers,
    Timers,
    Tuner,
)
from shunter.extensions.fleet.policies.role import by_priority


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

    def __init__(self, name: str, tuner: Tuner, mover: Mover | None = None, *, reserves: bool = False) -> None:
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
        moments = [moment for state in board.waiting.values() for moment in self._wake_ups(state, board)]
        return min((moment for moment in moments if moment > board.now), default=None)

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
        types = [name for name in job.types(board.cluster) if board.free_of[name] >= job.asks(name)]
        if not types:
            return False
        offered = self._first_offers.setdefault(state.name, board.now)
        placement = self._best_place(state, types, board, offered)
        if kept is not None and placement is not None and not kept.allows(state, placement, board):
            placement = self._best_place(state, types, board, offered, without=kept.machines)
        if placement is None:
            return False
        if kept is not None:
            kept.note(state, placement, board)
        board.start(state, placement)
        level = board.cluster.level(placement)
        self._tuner.record(state.held, level, board.now - offered, board.now)
        del self._first_offers[state.name]
        return True

    def _best_place(
        self, state: JobState, types: list[str], board: Board, offered: float, without: frozenset[int] = frozenset()
    ) -> Placement | None:
        best: tuple[float, Placement] | None = None
        for name in types:
            worst = self._worst_level(state, name, board, offered)
            need = state.job.need(name)
            placement = board.place(state.job.asks(name), name, worst, need=need, without=without)
            if placement is not None:
                seconds = state.seconds_left(board.conditions(placement))
                if best is None or seconds < best[0]:
                    best = seconds, placement
        return best[1] if best else None

    def _worst_level(self, state: JobState, accelerator: str, board: Board, offered: float) -> int:
        """Return the loosest level that a job accepts, given the time of its first offer."""
        asked = state.job.asks(accelerator)
        timers = self._tuner.timers(asked, board.now)
        best = state.job.best_level(board.cluster, accelerator)
        if board.now >= offered + timers.rack_seconds:
            return NETWORK
        return max(best, RACK) if board.now >= offered + timers.machine_seconds else best

    def _wake_ups(self, state: JobState, board: Board) -> tuple[float, ...]:
        offered = self._first_offers.get(state.name)
        if offered is None:
            return ()
        asked = {state.job.asks(name) for name in state.job.types(board.cluster)}
        timers = [timer for count in asked for timer in self._tuner.timers(count, board.now)]
        return tuple(offered + timer for timer in timers if timer < inf)


def nowait() -> Delayed:
    """Return a work-conserving scheduler: jobs accept any free placement."""
    return Delayed("dally-nowait", FixedTimers(NEVER_WAIT))


def consolidated() -> Delayed:
    """Return a scheduler whose jobs accept only placements at their tightest possible level."""
    return Delayed("dally-consolidated", FixedTimers(WAIT_FOR_EVER))


def manual(machine_seconds: float = 3600.0, rack_seconds: float = 7200.0) -> Delayed:
    """Return a scheduler with fixed timers."""
    return Delayed("dally-manual", FixedTimers(Timers(machine_seconds, rack_seconds)))


def auto() -> Delayed:
    """Return a scheduler with learned timers and without moves."""
    return Delayed("dally-auto", AutoTuner())


def whole(tuner: Tuner | None = None) -> Delayed:
    """Return the complete Dally: learned timers, upgrades and swaps, and reservations for the job that would end last.

    Args:
        tuner: Sets the timers; by default one that learns.
    """
    return Delayed("dally", tuner or AutoTuner(), Mover(), reserves=True)
