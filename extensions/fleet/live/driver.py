"""Live driver: runs training jobs on real machines under a policy, like the simulator but with real events."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

from shunter.errors import InfeasibleError, RequestError
from shunter.extensions.fleet.board import Board, Policy
from shunter.extensions.fleet.cluster import AcceleratorType, Cluster, Placement
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.learned.policy import Learned
from shunter.extensions.fleet.live.board import MachineRegistry, largest
from shunter.extensions.fleet.live.record import JobRecord, Status
from shunter.extensions.fleet.live.role import (
    Event,
    Failed,
    Finished,
    Granted,
    Lost,
    Progress,
    Stopped,
    Trained,
    Trainings,
    names_of,
)
from shunter.extensions.fleet.live.training import LiveJob, live_job
from shunter.extensions.fleet.schedule import Outcome, Schedule, Span

LOOK_SECONDS = 1.0  # longest interval between two checks of machines and progress
SAVE_SECONDS = 5.0  # longest time until changes of run times are saved
TELL_SECONDS = 30.0  # interval between two lines of progress
STOP_SECONDS = 90.0  # time for jobs to save their state when the driver ends
MOST_LOSSES = 3  # of one job in a row without progress: then the job itself is the likely cause
DOUBT_SECONDS = 30.0  # time without new jobs on a machine that lost one: Ray notices a dead machine late
STUCK_SECONDS = 600.0  # time that jobs wait for machines that are gone while nothing runs


@dataclass(frozen=True)
class DriverContext:
    """Callbacks and data of a driver, besides jobs, policy and machines.

    Attributes:
        clock: Seconds since the beginning of the fleet, including interruptions.
        keep: Called with the records of all jobs after each change, to save them.
        say: Called with progress messages.
        accelerators: Power and price by accelerator type, as far as known.
    """

    clock: Callable[[], float]
    keep: Callable[[tuple[JobRecord, ...]], None] = lambda records: None
    say: Callable[[str], None] = lambda sentence: None
    accelerators: Mapping[str, AcceleratorType] | None = None


class Driver:
    """Driver that runs jobs on machines under a policy until all have ended.

    Args:
        jobs: Jobs in any order; they arrive at their times after the beginning of the fleet.
        policy: Policy object that has not made any decision yet.
        trainings: Runs the jobs on the machines.
        context: Clock and callbacks.
        kept: Records that an earlier driver of the same jobs has saved.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        policy: Policy,
        trainings: Trainings,
        context: DriverContext,
        kept: Iterable[JobRecord] = (),
    ) -> None:
        left = {record.name: record for record in kept}
        ordered = sorted(jobs, key=lambda job: job.arrival_seconds)
        self.jobs = {job.name: live_job(job, left.get(job.name)) for job in ordered}
        self._policy, self._trainings, self._around = policy, trainings, context
        self._ground = MachineRegistry(context.accelerators or {})
        self._ask_at = -inf
        self._saved_at = self._told_at = -inf
        self._moved_at: dict[str, float] = {}
        self._stuck_since: float | None = None
        self.now = 0.0

    def run(self) -> None:
        """Run until every job is trained or has failed.

        Raises:
            RequestError: A job is larger than every machine or supports no machine, or the policy was trained for
                another cluster.
            InfeasibleError: Machines were lost, and a remaining job fits on no other machine.
            HardwareError: The cluster does not respond.
            KeyboardInterrupt: Ctrl-C; running jobs have saved their state.
        """
        self._look()
        self._check_fit()
        if isinstance(self._policy, Learned):
            self._policy.check(self.cluster)
        for one in self.jobs.values():
            if one.status is Status.TRAINED:  # only its evaluation is missing, which needs no accelerators
                on = next(iter(self._ground.up))
                count = one.state.job.asks(self._ground.type_of(on))
                self._trainings.start(one.name, ((on, count),))
        try:
            happened = True
            while not all(one.status.is_over for one in self.jobs.values()):
                happened = self._look() or happened
                for one in self.jobs.values():
                    if one.status is Status.COMING and one.state.job.arrival_seconds <= self.now:
                        one.status, happened = Status.WAITING, True
                is_due = self.now >= self._ask_at or (happened and self._policy.round_seconds is None)
                if is_due and any(one.is_on_board for one in self.jobs.values()):
                    self._decide()
                if happened or self.now - self._saved_at >= SAVE_SECONDS:
                    self._keep()
                self._tell()
                self._check_stuck()
                events = self._trainings.events(self._patience())
                self._observe()
                happened = sum(self._take(event) for event in events) > 0  # sum and not any, so that all are handled
        except BaseException:
            self._stop_all()
            raise
        finally:
            self._keep()

    def schedule(self) -> Schedule:
        """Return the measured schedule of the jobs that were trained, in the format of the simulator."""
        cluster = self.cluster
        index = {machine.name: i for i, machine in enumerate(cluster.machines)}
        outcomes, spans = [], []
        for one in self.jobs.values():
            state, stretches = one.state, one.record().stretches
            if one.status not in (Status.TRAINED, Status.FINISHED) or not stretches:
                continue
            for stretch in stretches:
                held = tuple((index[name], count) for name, count in stretch.places)
                spans.append(Span(one.name, held, stretch.begin_seconds, stretch.end_seconds, cluster.level(held)))
            outcomes.append(
                Outcome(
                    job=one.name,
                    accelerators=state.job.accelerators,
                    arrival_seconds=state.job.arrival_seconds,
                    first_start_seconds=stretches[0].begin_seconds,
                    end_seconds=stretches[-1].end_seconds,
                    run_seconds=sum(stretch.seconds for stretch in stretches),
                    ideal_seconds=state.ideal_seconds,
                    isolated_seconds=one.isolated_seconds(cluster),
                    preemptions=state.preemptions,
                    migrations=state.migrations,
                )
            )
        return Schedule(self._policy.name, cluster, tuple(outcomes), tuple(spans), 0)

    @property
    def cluster(self) -> Cluster:
        """All machines that were up at some time."""
        return self._ground.whole_cluster

    def _look(self) -> bool:
        """Update which machines are up; return True if that has changed."""
        self.now = self._around.clock()
        machines = self._trainings.machines()
        came, went = self._ground.update(machines)
        for name in sorted(went):
            self._around.say(f"Machine {name} was lost: its jobs continue on other machines.")
        moving = [
            one
            for one in self.jobs.values()
            if one.status is Status.STOPPING or (one.status is Status.RUNNING and one.granted_at is None)
        ]
        busy = {beside for one in moving for name, _ in one.places for beside in self._ground.beside(name)}
        changed = self._ground.trust_again(self.now)
        for machine in machines:
            if machine.name not in busy and self.now - self._moved_at.get(machine.name, -inf) >= 2 * LOOK_SECONDS:
                changed = self._ground.record_others(machine.name, *self._held(machine.name)) or changed
        return changed or bool(came or went)

    def _held(self, machine: str) -> tuple[int, float]:
        """Return the number of a machine's accelerators that our jobs hold, and their GiB of memory on its server."""
        beside, count, memory = self._ground.beside(machine), 0, 0.0
        for one in self.jobs.values():
            for name, held in one.places if one.granted_at is not None else ():
                count += held if name == machine else 0
                if name in beside:
                    memory += one.state.job.need(self._ground.type_of(name)).memory(held)
        return count, memory

    def _note_moved(self, one: LiveJob) -> None:
        """Ignore the reported usage of a job's machines for a while, because Ray reports changes with a delay."""
        self._moved_at |= {beside: self.now for name, _ in one.places for beside in self._ground.beside(name)}

    def _check_fit(self) -> None:
        """Raise if a job fits on no machine."""
        for one in self.jobs.values():
            if one.status.is_over or one.status is Status.TRAINED:
                continue
            job, cluster = one.state.job, self.cluster
            if not job.types(cluster) and replace(job, server_memory_gib=0.0).types(cluster):
                raise RequestError(
                    f"job {job.name!r} needs {job.server_memory_gib:.2g} GiB of server memory for each "
                    "process, and no suitable machine of the cluster offers as much: add a larger one "
                    "(`ray start --memory`)"
                )
            if not job.types(cluster):
                raise RequestError(
                    f"job {job.name!r} runs on {', '.join(job.work.types())}, but the cluster has "
                    f"{', '.join(cluster.types)}: give its train_seconds for one of these types"
                )
            room = largest(cluster.machines, job, job.types(cluster))
            if any(count >= job.asks(kind) for kind, count in room.items()):
                continue
            kind = max(room, key=lambda name: room[name] / job.asks(name))
            asked, most, part = job.asks(kind), room[kind], job.part_on(kind)
            if part is None:
                raise RequestError(
                    f"job {job.name!r} needs {asked} accelerators, but the largest suitable machine of the "
                    f"cluster has {most}: request fewer, add a larger machine, or use several processes "
                    "(train: {processes: 2})"
                )
            raise RequestError(
                f"job {job.name!r} needs {asked} accelerators, {part} for each process, but the suitable "
                f"machines of the cluster have room for {most}: request fewer, or add a machine"
            )

    def _decide(self) -> None:
        """Let the policy decide, and carry out its changes of the board."""
        self._observe()
        states = [one.state for one in self.jobs.values() if one.is_on_board]
        placed = [state for state in states if state.placement is not None]
        cluster = self._ground.cluster
        waiting = [  # those that some machine could run, the longest waiting first
            state for state in states if state.placement is None and self._ground.has_room(state.job, cluster)
        ]
        waiting.sort(key=lambda state: state.waiting_since)
        board = self._ground.board(waiting, placed, self.now)
        again, rounds = self._policy.decide(board), self._policy.round_seconds
        if rounds is not None:
            self._ask_at = (ceil(self.now / rounds) or 1) * rounds
            self._ask_at += rounds if self._ask_at <= self.now else 0.0
        else:
            self._ask_at = inf if again is None else max(again, self.now)
        stopped_first = sorted(board.touched.values(), key=lambda one: one[1] is None)
        for state, before in stopped_first:
            if state.placement != before:
                self._carry_out(self.jobs[state.name], before, state.placement, board)

    def _carry_out(self, one: LiveJob, before: Placement | None, after: Placement | None, board: Board) -> None:
        if one.status is Status.RUNNING:
            self._trainings.stop(one.name)
            one.costs.stop(self.now)
            one.status = Status.STOPPING
            one.state.preemptions += after is None
            one.state.migrations += after is not None
            where = "waits" if after is None else f"moves to {names_of(self._ground.places(after))}"
            self._around.say(f"{one.name} saves its state and {where}.")
        one.following = after
        if after is None:
            one.leave_place(self.now)
            return
        one.take_place(after, board)
        if one.status is Status.WAITING:
            self._send(one)

    def _send(self, one: LiveJob) -> None:
        """Start a job at the placement that the policy chose."""
        placement = one.state.placement
        assert placement is not None, f"{one.name} has no place"
        one.places, one.following, one.status = self._ground.places(placement), None, Status.RUNNING
        self._note_moved(one)
        stopping = [other for other in self.jobs.values() if other.status is Status.STOPPING]
        held = {name for other in stopping for name, _ in other.places}
        assert one.state.conditions is not None
        is_free = held.isdisjoint(name for name, _ in one.places)
        one.costs.send(self.now, one.state.conditions.accelerator, is_free=is_free)
        self._trainings.start(one.name, one.places)

    def _take(self, event: Event) -> bool:
        """Handle an event; return True if the policy must decide again."""
        one = self.jobs[event.job]
        if isinstance(event, Granted):
            one.begin(self.now)
            self._saved_at = -inf  # save at once, so that the start is known if this driver is killed
            share = f" at {one.saved_share:.0%}" if one.saved_share else ""
            self._around.say(f"{one.name} {'goes on' if one.stretches else 'begins'}{share} on {one.where}.")
            return False
        if isinstance(event, Finished):
            one.status, one.figures = Status.FINISHED, event.figures
            return False
        if one.status is Status.TRAINED and isinstance(event, Lost | Stopped):
            return False  # only the evaluation is missing, which the next driver does
        self._note_moved(one)
        if isinstance(event, Trained):
            one.observe(self.now, Progress(1, 1, 1))
        one.cease(self.now, is_lost=isinstance(event, Lost))
        if isinstance(event, Trained):
            self._end(one, Status.TRAINED)
            seconds = sum(stretch.seconds for stretch in one.stretches)
            self._around.say(f"{one.name} is trained after {seconds:,.0f} s of training.")
        elif isinstance(event, Failed):
            self._end(one, Status.FAILED)
            one.because = event.because
            self._around.say(f"{one.name} failed and is not retried: {event.because}")
        elif isinstance(event, Stopped):
            one.fall_back()
            one.status = Status.WAITING
            if one.following is not None:  # it restarts at its new placement
                self._send(one)
            return False
        else:
            self._lose(one, event)
        return True

    def _end(self, one: LiveJob, status: Status) -> None:
        one.status, one.following = status, None
        one.leave_place(self.now)

    def _lose(self, one: LiveJob, event: Lost) -> None:
        for name, _ in one.places:
            self._ground.doubt(name, self.now + DOUBT_SECONDS)
        one.losses = one.losses + 1 if one.saved_share <= one.lost_at else 1
        one.lost_at = one.saved_share
        if one.losses > MOST_LOSSES:
            self._end(one, Status.FAILED)
            one.because = f"It was lost {one.losses} times in a row at {one.saved_share:.0%} ({event.because})"
            self._around.say(f"{one.name} failed and is not retried: {one.because}")
            return
        self._around.say(f"{one.name} was lost ({event.because}): it resumes at {one.saved_share:.0%}.")
        one.fall_back()
        self._end(one, Status.WAITING)

    def _observe(self) -> None:
        self.now = max(self.now, self._around.clock())
        for one in self.jobs.values():
            if one.is_on_board:
                one.observe(self.now, self._trainings.progress(one.name) if one.granted_at is not None else None)

    def _patience(self) -> float:
        """Return the seconds until the driver has to act, even without an event."""
        coming = [one.state.job.arrival_seconds for one in self.jobs.values() if one.status is Status.COMING]
        moments = [*coming, *([self._ask_at] if self._ask_at > self.now else [])]
        return min(max(min(moments, default=inf) - self.now, 0.0), LOOK_SECONDS)

    def _check_stuck(self) -> None:
        """Raise if, for `STUCK_SECONDS`, all jobs that are left wait for machines that are not up."""
        waiting = [one for one in self.jobs.values() if one.status is Status.WAITING]
        fits = self._ground.cluster if waiting else None
        unfit = [one for one in waiting if fits and not self._ground.has_room(one.state.job, fits)]
        active = any(not one.status.is_over and one not in unfit for one in self.jobs.values())
        if active or not unfit:
            self._stuck_since = None
            return
        if self._stuck_since is None:
            self._stuck_since = self.now
            self._around.say(f"{unfit[0].name} waits for a suitable machine: none is up.")
        if self.now - self._stuck_since >= STUCK_SECONDS:
            raise InfeasibleError(
                f"{len(unfit)} jobs, such as {unfit[0].name!r}, have waited {STUCK_SECONDS:.0f} s for a "
                "suitable machine: add one to the cluster and repeat the command to resume them."
            )

    def _tell(self) -> None:
        if self.now - self._told_at < TELL_SECONDS:
            return
        self._told_at = self.now
        running = [one for one in self.jobs.values() if one.status in (Status.RUNNING, Status.STOPPING)]
        waiting = sum(one.status is Status.WAITING for one in self.jobs.values())
        ended = sum(one.status in (Status.TRAINED, Status.FINISHED) for one in self.jobs.values())
        shares = ", ".join(f"{one.name} {one.share:.0%} on {one.where}" for one in running)
        self._around.say(f"{ended} of {len(self.jobs)} trained, {waiting} wait; {shares or 'none runs'}.")

    def _stop_all(self) -> None:
        """Stop the running jobs after a checkpoint, and wait for them."""
        running = {one.name for one in self.jobs.values() if one.status in (Status.RUNNING, Status.STOPPING)}
        for one in self.jobs.values():
            if one.status is Status.RUNNING:
                self._trainings.stop(one.name)
                one.costs.stop(self.now)
                one.status = Status.STOPPING
            one.following = None
        deadline = self._around.clock() + STOP_SECONDS
        while running and self._around.clock() < deadline:
            events = self._trainings.events(LOOK_SECONDS)
            self._observe()
            for event in events:
                if isinstance(event, Granted):
                    continue
                self._take(event)
                running.discard(event.job)

    def _keep(self) -> None:
        self._saved_at = self.now
        self._around.keep(tuple(one.record() for one in self.jobs.values()))
