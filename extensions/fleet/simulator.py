"""Event-driven simulation of a cluster under a policy: equal inputs give exactly equal schedules."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from math import ceil, inf

from shunter.errors import InfeasibleError, RequestError
from shunter.extensions.fleet.board import Board, Policy
from shunter.extensions.fleet.cluster import MACHINE, NETWORK, Cluster, Placement
from shunter.extensions.fleet.job import Job, JobState, tightest
from shunter.extensions.fleet.schedule import Outcome, Schedule, Span, outcome_of

# Order of events at the same time: ends come first, so that a decision at that time can use their accelerators.
END, RETURN, OUTAGE, SLOWDOWN, ARRIVAL, DECIDE = range(6)
PROGRESS_EVERY = 500  # number of ended jobs between two progress reports

Uplink = tuple[str, int]


class Uplinks:
    """Jobs whose placement crosses each network uplink; they share the bandwidth of the uplink evenly."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._jobs: dict[Uplink, dict[str, JobState]] = defaultdict(dict)
        self._crossed: dict[str, list[Uplink]] = {}
        self._changed: dict[str, JobState] = {}

    def cross(self, state: JobState, placement: Placement, sign: int) -> None:
        """Add a job to the network uplinks that its placement uses (`sign` 1), or remove it from them (`sign` -1)."""
        links: list[Uplink] = [("machine", machine) for machine, _ in placement]
        if self._cluster.level(placement) == NETWORK:
            links += dict.fromkeys(("rack", self._cluster.rack_of[machine]) for machine, _ in placement)
        for link in links:
            jobs = self._jobs[link]
            if sign > 0:
                jobs[state.name] = state
            else:
                jobs.pop(state.name, None)
            self._changed |= jobs
        if sign > 0:
            self._crossed[state.name] = links
        else:
            self._crossed.pop(state.name, None)
            self._changed.pop(state.name, None)

    def slowdown(self, state: JobState) -> float:
        """Return the factor on the time of a job's communication: the number of jobs on its most shared uplink."""
        return float(max((len(self._jobs[link]) for link in self._crossed.get(state.name, ())), default=1))

    def changed(self) -> list[JobState]:
        """Return the jobs whose bandwidth may have changed since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed.values())


def simulate(
    jobs: Iterable[Job], cluster: Cluster, policy: Policy, on_progress: Callable[[int, int], None] | None = None
) -> Schedule:
    """Simulate a trace under a policy.

    Args:
        jobs: The trace, in any order.
        cluster: Simulated cluster.
        policy: New policy object, because some policies have state.
        on_progress: Called periodically with the number of ended jobs, and of all jobs.

    Raises:
        RequestError: Two jobs have the same name, or a job is larger than the cluster.
        InfeasibleError: Machines were lost permanently, but remaining jobs need them.
    """
    return _Simulation(sorted(jobs, key=lambda job: job.arrival_seconds), cluster, policy, on_progress).run()


class _Simulation:
    def __init__(
        self, jobs: list[Job], cluster: Cluster, policy: Policy, on_progress: Callable[[int, int], None] | None
    ) -> None:
        self._cluster, self._policy, self._on_progress = cluster, policy, on_progress
        self._board = Board(cluster)
        self._board.has_priorities = len({job.priority for job in jobs}) > 1
        self._uplinks = Uplinks(cluster)
        self._events: list[tuple[float, int, int, object, int]] = []
        self._counter = 0
        self._decide_at = inf
        self._outcomes: list[Outcome] = []
        self._spans: list[Span] = []
        self._count, self._decisions = len(jobs), 0
        self._order: dict[str, int] = {}
        for job in jobs:
            if job.name in self._order:
                raise RequestError(f"two jobs are called {job.name!r}: give each job its own name")
            self._order[job.name] = len(self._order)
            cluster.require({name: job.asks(name) for name in job.types(cluster)}, job.name)
            self._push(job.arrival_seconds, ARRIVAL, job)
        index = {machine.name: i for i, machine in enumerate(cluster.machines)}
        for outage in cluster.outages:
            for machine in cluster.beside(index[outage.machine]):
                self._push(outage.begin_seconds, OUTAGE, machine)
                if outage.end_seconds is not None:
                    self._push(outage.end_seconds, RETURN, machine)
        for slowdown in cluster.slowdowns:
            machine = index[slowdown.machine]
            self._push(slowdown.begin_seconds, SLOWDOWN, (machine, slowdown.speed))
            if slowdown.end_seconds is not None:
                self._push(slowdown.end_seconds, SLOWDOWN, (machine, 1.0))

    def run(self) -> Schedule:
        """Simulate until the last job has ended."""
        board, rounds = self._board, self._policy.round_seconds
        while self._events and len(self._outcomes) < self._count:
            board.now = self._events[0][0]
            happened = decides = False
            while self._events and self._events[0][0] == board.now:
                _, kind, _, subject, version = heapq.heappop(self._events)
                if kind == DECIDE:
                    decides = decides or board.now >= self._decide_at
                else:
                    happened = self._happen(kind, subject, version) or happened
            if decides or (happened and rounds is None):
                self._decide()
            elif happened and (board.touched or board.changed_machines):
                self._carry_out()  # jobs that an outage stopped wait for the next round
            if rounds is not None and (board.waiting or board.running) and self._decide_at == inf:
                moment = ceil(board.now / rounds) * rounds
                self._ask_at(moment + rounds if decides and moment == board.now else moment)
        if len(self._outcomes) < self._count:
            stuck = min(self._board.waiting, default="none")
            raise InfeasibleError(
                f"{self._count - len(self._outcomes)} jobs, such as {stuck!r}, cannot run after the "
                "outages of the cluster: end the outages, or remove the jobs"
            )
        outcomes = tuple(sorted(self._outcomes, key=lambda outcome: self._order[outcome.job]))
        return Schedule(self._policy.name, self._cluster, outcomes, tuple(self._spans), self._decisions)

    def _happen(self, kind: int, subject: object, version: int) -> bool:
        """Process one event of the simulation; return False if the event was outdated."""
        board = self._board
        if isinstance(subject, Job):
            board.waiting[subject.name] = JobState(subject, waiting_since=board.now)
        elif isinstance(subject, JobState):
            if subject.version != version:
                return False
            self._end(subject)
        elif isinstance(subject, int) and kind == OUTAGE:
            for state in board.lose(subject):
                state.advance_to(board.now)
                state.done = state.saved
        elif isinstance(subject, int):
            board.regain(subject)
        elif isinstance(subject, tuple):
            board.pace(*subject)
        return True

    def _end(self, state: JobState) -> None:
        board = self._board
        state.advance_to(board.now)
        self._close_span(state, state.placement)
        self._cross(state, state.placement, -1)
        board.release(state)
        self._outcomes.append(outcome_of(state, self._cluster, board.now))
        self._slow_down()
        if self._on_progress is not None and len(self._outcomes) % PROGRESS_EVERY == 0:
            self._on_progress(len(self._outcomes), self._count)

    def _decide(self) -> None:
        self._decide_at = inf
        if not self._board.waiting and not self._board.running:
            return
        self._decisions += 1
        again = self._policy.decide(self._board)
        self._carry_out()
        if again is not None and self._policy.round_seconds is None:
            assert again > self._board.now, f"{self._policy.name} would decide without end at {self._board.now}"
            self._ask_at(again)

    def _ask_at(self, moment: float) -> None:
        if moment < self._decide_at or self._decide_at <= self._board.now:
            self._decide_at = moment
            self._push(moment, DECIDE, None)

    def _carry_out(self) -> None:
        """Carry out the policy's changes of the board."""
        touched, self._board.touched = self._board.touched, {}
        for state, before in touched.values():
            if state.placement == before:
                continue
            if before is not None:
                self._stop(state, before)
            if state.placement is not None:
                self._start(state, state.placement, moved=before is not None)
        self._slow_down()

    def _stop(self, state: JobState, before: Placement) -> None:
        now = self._board.now
        state.advance_to(now)
        state.saved = state.done
        self._close_span(state, before)
        self._cross(state, before, -1)
        state.conditions, state.ideal, state.end = None, None, inf
        state.waiting_since = now
        state.version += 1
        state.preemptions += state.placement is None

    def _start(self, state: JobState, placement: Placement, *, moved: bool) -> None:
        now, job = self._board.now, state.job
        self._cross(state, placement, 1)
        state.conditions = self._board.conditions(placement)
        on, counts, *_, speed = state.conditions
        state.ideal = tightest(sum(counts), self._cluster, on, speed)
        state.power_share = self._board.power_share(placement)
        state.overhead_left = job.moves_in(on) if state.starts else job.starts_in(on)
        state.started_at = state.drawn_since = state.updated_at = now
        state.starts += 1
        state.migrations += moved
        if state.first_start is None:
            state.first_start = now
        self._announce_end(state)

    def _cross(self, state: JobState, placement: Placement | None, sign: int) -> None:
        """Add a job to the network uplinks that it uses, or remove it."""
        if placement is not None and self._cluster.network.shared_uplinks and len(placement) > 1:
            self._uplinks.cross(state, placement, sign)

    def _slow_down(self) -> None:
        """Update the speed of jobs when their share of an uplink, or the speed of one of their machines, changes."""
        board, states = self._board, self._uplinks.changed()
        if board.changed_machines:
            machines, board.changed_machines = board.changed_machines, set()
            on_them = [
                state
                for state in board.running.values()
                if state not in states and any(machine in machines for machine, _ in state.placement or ())
            ]
            states += on_them
            for state in on_them:
                assert state.placement is not None
                share = board.power_share(state.placement)
                if share != state.power_share:  # the span of the former power draw ends
                    if state.drawn_since < board.now:
                        self._close_span(state, state.placement)
                    state.drawn_since, state.power_share = board.now, share
        for state in states:
            if state.placement is None or state.conditions is None:
                continue
            conditions = board.conditions(state.placement, self._uplinks.slowdown(state))
            if conditions != state.conditions:
                state.advance_to(board.now)
                if state.ideal is not None:
                    state.ideal = state.ideal._replace(speed=conditions.speed)
                state.conditions = conditions
                self._announce_end(state)

    def _announce_end(self, state: JobState) -> None:
        assert state.conditions is not None
        state.version += 1
        state.end = self._board.now + state.overhead_left + state.seconds_left(state.conditions)
        self._push(state.end, END, state, state.version)

    def _close_span(self, state: JobState, placement: Placement | None) -> None:
        assert placement is not None
        level = self._cluster.level(placement) if len(placement) > 1 else MACHINE
        self._spans.append(Span(state.name, placement, state.drawn_since, self._board.now, level, state.power_share))

    def _push(self, moment: float, kind: int, subject: object, version: int = 0) -> None:
        self._counter += 1  # events at equal times keep the order in which they were added
        heapq.heappush(self._events, (moment, kind, self._counter, subject, version))
