"""What a fleet keeps of itself, so that its driver can be killed at any moment: every job, as far as it has come."""

from enum import StrEnum

from pydantic import Field

from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.live.role import Places
from shunter.extensions.fleet.schedule import Outcome, Schedule, Span
from shunter.frozen import Frozen


class Status(StrEnum):
    """Where a job stands."""

    COMING = "coming"
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    TRAINED = "trained"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self in (Status.FINISHED, Status.FAILED)


class Stretch(Frozen):
    """A stretch during which a job held accelerators.

    Attributes:
        machine: Machine that they were of, or the first of several.
        accelerators: How many, of all machines together.
        begin_seconds: When it began.
        end_seconds: When it ended.
        others: Further machines, with how many of each.
    """

    machine: str
    accelerators: int
    begin_seconds: float
    end_seconds: float
    others: Places = ()

    @property
    def places(self) -> Places:
        """All machines, with how many of each."""
        return ((self.machine, self.accelerators - sum(count for _, count in self.others)), *self.others)


class Seen(Frozen):
    """What was seen of a job on one accelerator type: what later fleets foresee the like by.

    Attributes:
        train_seconds: Between its steps, without what starting and moving took.
        start_seconds: From the decision to start it to its first step; None where it did not begin here.
        checkpoint_seconds: Of each time that it was stopped, from the decision until it had let go.
        restore_seconds: Of each time that it went on, from the decision to its next step.
    """

    train_seconds: float = 0.0
    start_seconds: float | None = None
    checkpoint_seconds: tuple[float, ...] = ()
    restore_seconds: tuple[float, ...] = ()


class JobRecord(Frozen):
    """One job.

    Attributes:
        name: Its name.
        status: Where it stands.
        share: Share of its longest schedule that its last checkpoint holds.
        pace: Seconds of the whole job by accelerator type, as measured.
        stretches: When it held what.
        waiting_since: When it last began to wait.
        ideal_seconds: What its progress would have taken side by side and alone.
        preemptions: How often it was stopped to wait.
        migrations: How often it was moved.
        losses: How often in a row it was lost without having come further.
        because: Why it failed.
        figures: What its model reached.
        seen: What was seen of it, by accelerator type.
        is_whole: Whether no step was taken twice, so that its times are those of the whole training.
    """

    name: str
    status: Status = Status.COMING
    share: float = 0.0
    pace: dict[str, float] = Field(default_factory=dict)
    stretches: tuple[Stretch, ...] = ()
    waiting_since: float = 0.0
    ideal_seconds: float = 0.0
    preemptions: int = 0
    migrations: int = 0
    losses: int = 0
    because: str = ""
    figures: dict[str, float] = Field(default_factory=dict)
    seen: dict[str, Seen] = Field(default_factory=dict)
    is_whole: bool = True


class FleetRecord(Frozen):
    """A fleet.

    Attributes:
        begun_at: When it was begun, in seconds since 1970: all its times count from then.
        run_id: Its run in MLflow.
        jobs: Its jobs.
    """

    begun_at: float
    run_id: str
    jobs: tuple[JobRecord, ...] = ()


class Ended(Frozen):
    """What is known of a job that was trained, for its outcome."""

    record: JobRecord
    accelerators: int
    arrival_seconds: float
    isolated_seconds: float


def measured_schedule(policy: str, cluster: Cluster, ended: list[Ended]) -> Schedule:
    """What the policy did, in the words of the simulator; jobs that failed have no outcome.

    Args:
        policy: Its name.
        cluster: All machines that were there at some time.
        ended: The jobs that were trained.
    """
    index = {machine.name: i for i, machine in enumerate(cluster.machines)}
    outcomes, spans = [], []
    for one in ended:
        stretches = one.record.stretches
        if not stretches:
            continue
        for stretch in stretches:
            held = tuple((index[name], count) for name, count in stretch.places)
            spans.append(Span(one.record.name, held, stretch.begin_seconds, stretch.end_seconds, cluster.level(held)))
        outcomes.append(
            Outcome(
                job=one.record.name,
                accelerators=one.accelerators,
                arrival_seconds=one.arrival_seconds,
                first_start_seconds=stretches[0].begin_seconds,
                end_seconds=stretches[-1].end_seconds,
                run_seconds=sum(stretch.end_seconds - stretch.begin_seconds for stretch in stretches),
                ideal_seconds=one.record.ideal_seconds,
                isolated_seconds=one.isolated_seconds,
                preemptions=one.record.preemptions,
                migrations=one.record.migrations,
            )
        )
    return Schedule(policy, cluster, tuple(outcomes), tuple(spans), 0)
