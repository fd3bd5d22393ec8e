"""Guaranteed deadlines: a job gets a reservation if its deadline is feasible together with earlier promises.

A reservation begins as late as the deadline allows, or as early as possible for a job that cannot be stopped. Until
then other jobs may use the reserved accelerators, and the job itself may run on others. Jobs that use reserved
accelerators when the reservation begins are stopped. A promise holds unless machines fail or slow down; a promise that
such an event breaks is renewed if possible.
"""

from math import inf
from typing import NamedTuple

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.job import Conditions, JobState
from shunter.extensions.fleet.learned.objectives import watts
from shunter.extensions.fleet.learned.view import deadline_of


class Reservation(NamedTuple):
    """Accelerators of one machine that are reserved for a period."""

    machine: int
    accelerators: int
    begin_seconds: float
    end_seconds: float


class Promises:
    """Reservations of jobs with a deadline, given the jobs that cannot be stopped.

    Attributes:
        kept: Reservations by job.
        refused: Jobs whose deadline could not be promised; they run without a deadline.
    """

    def __init__(self) -> None:
        self.kept: dict[str, Reservation] = {}
        self.refused: set[str] = set()

    def renew(self, board: Board) -> None:
        """Remove reservations of completed jobs and broken ones, and try to promise the deadlines of new jobs."""
        states = {**board.running, **board.waiting}
        for name, one in list(self.kept.items()):
            is_broken = board.is_down(one.machine) or board.speeds[one.machine] != 1.0
            if name not in states or is_broken or self._has_lost_its_place(states[name], one, board):
                del self.kept[name]
        new = [
            state
            for state in states.values()
            if state.job.deadline_seconds is not None and state.name not in self.kept and state.name not in self.refused
        ]
        for state in sorted(new, key=lambda state: (deadline_of(state), state.name)):
            counts_memory = bool(state.job.server_memory_gib and board.free_memory)  # not covered by reservations
            found = None if counts_memory else self._reserve(state, board)
            if found is None:
                self.refused.add(state.name)
            else:
                self.kept[state.name] = found

    def begun(self, board: Board) -> dict[str, Reservation]:
        """Return the reservations that have begun, by job name."""
        return {name: one for name, one in self.kept.items() if one.begin_seconds <= board.now}

    def next_begin(self, board: Board) -> float | None:
        """Return the time at which the next reservation begins."""
        return min((one.begin_seconds for one in self.kept.values() if one.begin_seconds > board.now), default=None)

    def settle(self, state: JobState, board: Board) -> None:
        """Replace a started job's reservation by one for the accelerators on which the job runs, if that fits."""
        placement = state.placement
        if placement is None or state.conditions is None or state.end > deadline_of(state):
            return
        (machine, count), *others = placement
        if others or board.caps[machine] or board.speeds[machine] != 1.0:
            return
        own = self.kept.pop(state.name)
        here = Reservation(machine, count, board.now, state.end)
        self.kept[state.name] = here if self._fits(here, self._holds(board), board.cluster) else own

    def _has_lost_its_place(self, state: JobState, one: Reservation, board: Board) -> bool:
        """Return True if an outage has stopped a job during its reservation, so that the job cannot end in time."""
        if one.begin_seconds >= board.now or state.placement is not None:
            return False
        accelerator = board.cluster.machines[one.machine].accelerator
        seconds = state.seconds_left(Conditions(accelerator, (one.accelerators,), 0))
        return board.now + seconds + state.job.move_seconds > one.end_seconds

    def _reserve(self, state: JobState, board: Board) -> Reservation | None:
        job, cluster = state.job, board.cluster
        usable, holds = job.types(cluster), self._holds(board)
        state.advance_to(board.now)
        best: Reservation | None = None
        for machine, there in enumerate(cluster.machines):
            asked = job.asks(there.accelerator)
            if there.accelerator not in usable or there.count < asked:
                continue
            if board.is_down(machine) or board.speeds[machine] != 1.0:
                continue
            alone = Conditions(there.accelerator, (asked,), 0)
            length = state.seconds_left(alone) + max(job.start_seconds, job.move_seconds)
            latest = deadline_of(state) - length
            if job.preemptible:
                moments = [latest, *(hold.begin_seconds - length for hold, _ in holds)]
            else:
                moments = [board.now, *(hold.end_seconds for hold, _ in holds)]
            for begin in sorted(
                (moment for moment in moments if board.now <= moment <= latest), reverse=job.preemptible
            ):
                one = Reservation(machine, asked, begin, begin + length)
                if self._fits(one, holds, cluster):
                    if best is None or (
                        (begin > best.begin_seconds) == job.preemptible and begin != best.begin_seconds
                    ):
                        best = one
                    break
        return best

    def _holds(self, board: Board) -> list[tuple[Reservation, float]]:
        """Return all reservations with the watts that each adds; running jobs that cannot be stopped count as such."""
        holds = list(self.kept.values())
        for state in board.running.values():
            if not state.job.preemptible and state.name not in self.kept:
                spread = len(state.placement or ()) > 1 and board.cluster.network.shared_uplinks
                end = inf if spread or not board.is_settled(state) else state.end
                holds += [Reservation(machine, count, board.now, end) for machine, count in state.placement or ()]
        return [(hold, added_watts(board.cluster, hold.machine, hold.accelerators)) for hold in holds]

    @staticmethod
    def _fits(one: Reservation, holds: list[tuple[Reservation, float]], cluster: Cluster) -> bool:
        """Return True if a reservation never exceeds the accelerators of its machine or the power limit."""
        overlapping = [
            (hold, power)
            for hold, power in holds
            if hold.begin_seconds < one.end_seconds and hold.end_seconds > one.begin_seconds
        ]
        own = added_watts(cluster, one.machine, one.accelerators)
        rest = sum(cluster.type_of(machine.accelerator).idle_watts * machine.count for machine in cluster.machines)
        for moment in (one.begin_seconds, *(hold.begin_seconds for hold, _ in overlapping)):
            if moment < one.begin_seconds:
                continue
            at = [(hold, power) for hold, power in overlapping if hold.begin_seconds <= moment < hold.end_seconds]
            held = sum(hold.accelerators for hold, _ in at if hold.machine == one.machine)
            if held + one.accelerators > cluster.machines[one.machine].count:
                return False
            limit = cluster.power_limit_watts
            if limit is not None and rest + own + sum(power for _, power in at) > limit * (1 + 1e-12):
                return False
        return True


def added_watts(cluster: Cluster, machine: int, count: int) -> float:
    """Return the watts of busy accelerators above their idle power."""
    kind = cluster.type_of(cluster.machines[machine].accelerator)
    return max(kind.busy_watts - kind.idle_watts, 0.0) * count


def is_over(board: Board) -> bool:
    """Return True if the power of all accelerators exceeds the cluster's limit."""
    limit = board.cluster.power_limit_watts
    return limit is not None and watts(board) > limit * (1 + 1e-9)
