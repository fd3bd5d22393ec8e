"""State of one job in the live driver."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from statistics import fmean

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import MACHINE, Cluster, Placement
from shunter.extensions.fleet.job import Conditions, Iterations, Job, JobState, Work, tightest
from shunter.extensions.fleet.live.record import HoldingPeriod, JobRecord, Seen, Status
from shunter.extensions.fleet.live.role import Places, Progress, names_of

LEAST_SECONDS, LEAST_SHARE = 2.0, 0.02  # shortest measurement, since the first steps are slower


@dataclass(slots=True)
class Pace:
    """Speed measurement of one job, on one accelerator type at a time.

    Attributes:
        measured: Seconds of the whole job by accelerator type, for types on which it has run.
        since: Time and completed share at the begin of a measurement; None after a start.
    """

    predicted: Work
    measured: dict[str, float] = field(default_factory=dict)
    since: tuple[float, float] | None = None

    def observe(self, accelerator: str, now: float, share: float) -> bool:
        """Record the completed share of the job; return True if this changes its measured speed."""
        if self.since is None:
            self.since = now, share
            return False
        seconds, gained = now - self.since[0], share - self.since[1]
        if seconds < LEAST_SECONDS or gained < LEAST_SHARE:
            return False
        self.measured[accelerator] = seconds / gained
        return True

    @property
    def work(self) -> Work:
        """Return the job's predicted work, corrected by the measured speeds."""
        return corrected(self.predicted, self.measured) if isinstance(self.predicted, Iterations) else self.predicted

    def done(self, share: float) -> float:
        """Convert a completed share of the job to iterations; return the share if the work is not in iterations."""
        return share * self.predicted.count if isinstance(self.predicted, Iterations) else share


def corrected(work: Iterations, measured: Mapping[str, float]) -> Iterations:
    """Return the work at the measured speed; types without a measurement are scaled by the mean correction.

    Args:
        work: Predicted work; without communication if the job runs on one machine.
        measured: Seconds of the whole job by accelerator type.
    """
    iteration_seconds = {
        name if name in work.compute_seconds else "": seconds / work.count
        for name, seconds in measured.items()
        if work.count
    }
    if not iteration_seconds:
        return work
    correction = fmean(seconds / work.compute_seconds[name] for name, seconds in iteration_seconds.items())
    untried = {
        name: seconds * correction for name, seconds in work.compute_seconds.items() if name not in iteration_seconds
    }
    return replace(work, compute_seconds={**untried, **iteration_seconds})


@dataclass(slots=True)
class Costs:
    """Stopwatch for the times that one job takes to start, train, stop and restart.

    Attributes:
        seen: Measurements by accelerator type.
        is_whole: True if no step was repeated.
    """

    seen: dict[str, Seen] = field(default_factory=dict)
    is_whole: bool = True
    _accelerator: str = ""
    _sent_at: float | None = None
    _since: float | None = None
    _stopped_at: float | None = None

    def send(self, now: float, accelerator: str, *, is_free: bool) -> None:
        """Record the start of a job; the start is timed only if the accelerators were free (`is_free`)."""
        self._accelerator, self._sent_at = accelerator, now if is_free else None
        self._since = self._stopped_at = None

    def step(self, now: float, *, is_first: bool) -> None:
        """Record that the job trains; only the first call after `send` has an effect."""
        if self._since is not None:
            return
        self._since = now
        if self._sent_at is None:
            return
        before = self.seen.get(self._accelerator, Seen())
        took = now - self._sent_at
        more = {"start_seconds": took} if is_first else {"restore_seconds": (*before.restore_seconds, took)}
        self.seen[self._accelerator] = before.model_copy(update=more)

    def stop(self, now: float) -> None:
        """Record that the job was ordered to stop."""
        self._stopped_at = now

    def cease(self, now: float, *, is_lost: bool) -> None:
        """Record that the job has released its accelerators."""
        before = self.seen.get(self._accelerator, Seen())
        self.is_whole = self.is_whole and not is_lost
        if self._since is not None:
            until = now if self._stopped_at is None else max(self._stopped_at, self._since)
            before = before.model_copy(update={"train_seconds": before.train_seconds + until - self._since})
        if self._stopped_at is not None and not is_lost:
            saving = (*before.checkpoint_seconds, now - self._stopped_at)
            before = before.model_copy(update={"checkpoint_seconds": saving})
        if before != Seen():
            self.seen[self._accelerator] = before
        self._sent_at = self._since = self._stopped_at = None


@dataclass(slots=True, eq=False)
class LiveJob:
    """Job with its state for the policy, and additional state of a live fleet.

    Attributes:
        pace: Measured speed.
        following: Next placement once the job has stopped; None to wait.
        granted_at: Time at which the job got its accelerators; None until Ray has assigned them.
        places: Machines on which the job was started.
        share: Completed share of the job's longest schedule.
        saved_share: Share at the job's last checkpoint.
        stretches: Periods in which the job held accelerators.
        losses: How often in a row the job's process or machine died before a new checkpoint.
        lost_at: `saved_share` when the process or machine last died.
        because: Reason of the job's failure.
        figures: Quality of the job's model.
        costs: Measured times of starting, training and stopping.
    """

    state: JobState
    pace: Pace
    status: Status = Status.COMING
    following: Placement | None = None
    granted_at: float | None = None
    places: Places = ()
    share: float = 0.0
    saved_share: float = 0.0
    stretches: list[HoldingPeriod] = field(default_factory=list)
    losses: int = 0
    lost_at: float = -1.0
    because: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.state.name

    @property
    def where(self) -> str:
        """Return the machines on which the job was started, as text for the user."""
        return names_of(self.places)

    @property
    def is_on_board(self) -> bool:
        """Return True if the policy may still place the job."""
        return self.status in (Status.WAITING, Status.RUNNING, Status.STOPPING)

    def take_place(self, placement: Placement, board: Board) -> None:
        """Set the placement that the policy has chosen for the job."""
        state = self.state
        state.placement = placement
        state.conditions = board.conditions(placement)
        state.ideal = tightest(sum(state.conditions.counts), board.cluster, state.conditions.accelerator)
        on = state.conditions.accelerator
        state.overhead_left = state.job.moves_in(on) if self.stretches else state.job.starts_in(on)
        state.started_at = state.updated_at = board.now
        state.version += 1
        self._predict_end(board.now)

    def leave_place(self, now: float) -> None:
        """Release the job's placement; the job waits until it gets another one."""
        state = self.state
        state.placement = state.conditions = state.ideal = None
        state.end, state.waiting_since, state.overhead_left = inf, now, 0.0
        state.version += 1

    def begin(self, now: float) -> None:
        """Record that the job has got its accelerators."""
        state = self.state
        self.granted_at = state.started_at = state.updated_at = now
        if state.first_start is None:
            state.first_start = now
        state.starts += 1
        self.pace.since = None  # a new measurement begins

    def cease(self, now: float, *, is_lost: bool = False) -> None:
        """Record that the job has released its accelerators."""
        self.costs.cease(now, is_lost=is_lost)
        self.stretches += self._open_stretch(now)
        self.granted_at = None

    def fall_back(self) -> None:
        """Reset the job's progress to its last checkpoint."""
        self.share = self.saved_share
        self.state.done = self.state.saved = self.pace.done(self.share)

    def observe(self, now: float, progress: Progress | None) -> None:
        """Update the job's times and progress to this time."""
        state = self.state
        if self.granted_at is not None:
            elapsed = now - state.updated_at
            state.run_seconds += elapsed
            state.service_seconds += elapsed * sum(count for _, count in self.places)
            state.overhead_left = max(state.overhead_left - elapsed, 0.0)
        state.updated_at = now
        if progress is not None and progress.total:
            self.costs.step(now, is_first=not self.stretches)
            before = state.done
            self.share, self.saved_share = progress.share, max(progress.saved_share, self.saved_share)
            if state.conditions is not None and self.status is Status.RUNNING:
                state.overhead_left = 0.0
                if self.pace.observe(state.conditions.accelerator, now, self.share):
                    state.job = replace(state.job, work=self.pace.work)
            state.done, state.saved = self.pace.done(self.share), self.pace.done(self.saved_share)
            if state.ideal is not None:
                work = state.job.work
                gained = work.seconds_left(before, state.ideal) - work.seconds_left(state.done, state.ideal)
                state.ideal_seconds += max(gained, 0.0)
        if state.conditions is not None:
            self._predict_end(now)

    def _predict_end(self, now: float) -> None:
        assert self.state.conditions is not None
        self.state.end = now + self.state.overhead_left + self.state.seconds_left(self.state.conditions)

    def record(self) -> JobRecord:
        """Return the job's record; a running job is recorded as waiting, for a driver that resumes from the record."""
        return JobRecord(
            name=self.name,
            status=Status.WAITING if self.is_on_board else self.status,
            share=self.saved_share,
            pace=self.pace.measured,
            stretches=(*self.stretches, *self._open_stretch(self.state.updated_at)),
            waiting_since=self.state.waiting_since,
            ideal_seconds=self.state.ideal_seconds,
            preemptions=self.state.preemptions,
            migrations=self.state.migrations,
            losses=self.losses,
            because=self.because,
            figures=self.figures,
            seen=self.costs.seen,
            is_whole=self.costs.is_whole and not (self.is_on_board and self.granted_at is not None),
        )

    def _open_stretch(self, now: float) -> list[HoldingPeriod]:
        if self.granted_at is None:
            return []
        (machine, _), *others = self.places
        return [
            HoldingPeriod(
                machine=machine,
                accelerators=sum(count for _, count in self.places),
                begin_seconds=self.granted_at,
                end_seconds=max(now, self.granted_at),
                others=tuple(others),
            )
        ]

    def isolated_seconds(self, cluster: Cluster) -> float:
        """Return the predicted seconds of the whole job without other jobs, in its fastest placement."""
        job, types = self.state.job, self.state.job.types(cluster)
        fitting = [
            Conditions(machine.accelerator, (asked,), MACHINE)
            for machine in cluster.machines
            if machine.accelerator in types and machine.count >= (asked := job.asks(machine.accelerator))
        ]
        if not fitting and job.part is not None:  # no machine has room for all its processes
            fitting = [tightest(job.asks(name), cluster, name) for name in types]
        return job.start_seconds + min((job.work.seconds_left(0.0, one) for one in fitting), default=0.0)


def live_job(job: Job, kept: JobRecord | None) -> LiveJob:
    """Return a new job, or the job as an earlier driver saved it."""
    pace, state = Pace(job.work), JobState(job, waiting_since=job.arrival_seconds)
    one = LiveJob(state, pace)
    if kept is None:
        return one
    pace.measured.update(kept.pace)
    state.job = replace(job, work=pace.work)
    one.status, one.share, one.saved_share = kept.status, kept.share, kept.share
    one.stretches, one.losses, one.because = list(kept.stretches), kept.losses, kept.because
    one.figures = dict(kept.figures)
    one.costs = Costs(dict(kept.seen), kept.is_whole)
    state.done = state.saved = pace.done(kept.share)
    state.waiting_since, state.ideal_seconds = kept.waiting_since, kept.ideal_seconds
    state.preemptions, state.migrations, state.starts = kept.preemptions, kept.migrations, len(kept.stretches)
    state.run_seconds = sum(stretch.seconds for stretch in kept.stretches)
    state.service_seconds = sum(stretch.seconds * stretch.accelerators for stretch in kept.stretches)
    state.first_start = kept.stretches[0].begin_seconds if kept.stretches else None
    return one
