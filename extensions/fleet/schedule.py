"""Schedule of a policy for a trace: all spans of the jobs, and the outcome of each job."""

from dataclasses import dataclass

from shunter.extensions.fleet.cluster import Cluster, Placement
from shunter.extensions.fleet.job import JobState


@dataclass(frozen=True, slots=True)
class Span:
    """Period in which a job held accelerators.

    Attributes:
        level: Distance level of the placement.
        power_share: Power draw under the caps of its machines, relative to that without caps.
    """

    job: str
    placement: Placement
    begin_seconds: float
    end_seconds: float
    level: int
    power_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a job; `isolated_seconds` is its time alone in a consolidated placement on its best type."""

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
        """Return True if the job ended after its deadline."""
        return self.deadline_seconds is not None and self.completion_seconds > self.deadline_seconds * (1 + 1e-9)

    @property
    def completion_seconds(self) -> float:
        """Time from arrival to end: the job completion time (JCT)."""
        return self.end_seconds - self.arrival_seconds

    @property
    def queueing_seconds(self) -> float:
        """Time during which the job waited, at first and after it was stopped."""
        return self.completion_seconds - self.run_seconds


@dataclass(frozen=True, slots=True)
class Schedule:
    """Schedule of a policy for a trace on a cluster."""

    policy: str
    cluster: Cluster
    outcomes: tuple[Outcome, ...]
    spans: tuple[Span, ...]
    decisions: int

    @property
    def begin_seconds(self) -> float:
        """Arrival time of the first job, in seconds."""
        return min((outcome.arrival_seconds for outcome in self.outcomes), default=0.0)

    @property
    def end_seconds(self) -> float:
        """End time of the last job, in seconds."""
        return max((outcome.end_seconds for outcome in self.outcomes), default=0.0)


def outcome_of(state: JobState, cluster: Cluster, end_seconds: float) -> Outcome:
    """Return the outcome of a job that has ended."""
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
