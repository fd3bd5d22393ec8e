"""What a policy has made of a trace: every stretch of every job, and its outcome."""

from dataclasses import dataclass

from shunter.extensions.fleet.cluster import Cluster, Placement
from shunter.extensions.fleet.job import JobState


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch during which a job held accelerators.

    Attributes:
        job: Name of the job.
        placement: Where.
        begin_seconds: From when.
        end_seconds: Until when.
        level: How far its accelerators lay apart.
        power_share: What they drew under the caps of their machines, as a share of what they draw without.
    """

    job: str
    placement: Placement
    begin_seconds: float
    end_seconds: float
    level: int
    power_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job; `isolated_seconds` is what it would have taken alone, side by side, on its best type."""

    job: str
    accelerators: int
    arrival_seconds: float
    first_start_seconds: float
    end_seconds: float
    run_seconds: float
    ideal_seconds: float
    isolated_seconds: float
    preemptions: int
    migrations: int
    deadline_seconds: float | None = None

    @property
    def is_late(self) -> bool:
        """Whether it ended after its deadline."""
        return self.deadline_seconds is not None and self.completion_seconds > self.deadline_seconds * (1 + 1e-9)

    @property
    def completion_seconds(self) -> float:
        """From its arrival to its end: the job completion time (JCT)."""
        return self.end_seconds - self.arrival_seconds

    @property
    def queueing_seconds(self) -> float:
        """How long it waited, at first and after it was stopped."""
        return self.completion_seconds - self.run_seconds


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that a policy did with a trace on a cluster."""

    policy: str
    cluster: Cluster
    outcomes: tuple[Outcome, ...]
    spans: tuple[Span, ...]
    decisions: int

    @property
    def begin_seconds(self) -> float:
        """When the first job came."""
        return min((outcome.arrival_seconds for outcome in self.outcomes), default=0.0)

    @property
    def end_seconds(self) -> float:
        """When the last job ended."""
        return max((outcome.end_seconds for outcome in self.outcomes), default=0.0)


def outcome_of(state: JobState, cluster: Cluster, end_seconds: float) -> Outcome:
    """The outcome of a job that has ended."""
    job = state.job
    assert state.first_start is not None, f"{job.name} ended without a start"
    ideal = job.ideal(cluster)
    alone = job.work.seconds_left(0.0, ideal) + job.starts_in(ideal.accelerator)
    return Outcome(
        job=job.name,
        accelerators=job.accelerators,
        arrival_seconds=job.arrival_seconds,
        first_start_seconds=state.first_start,
        end_seconds=end_seconds,
        run_seconds=state.run_seconds,
        ideal_seconds=state.ideal_seconds,
        isolated_seconds=alone,
        preemptions=state.preemptions,
        migrations=state.migrations,
        deadline_seconds=job.deadline_seconds,
    )
