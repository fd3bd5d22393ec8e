"""State of a fleet that is saved continuously, so that its driver can be killed at any moment and resumed."""

from enum import StrEnum

from pydantic import Field

from shunter.extensions.fleet.live.role import Places
from shunter.frozen import Frozen


class Status(StrEnum):
    """Status of a job."""

    COMING = "coming"
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    TRAINED = "trained"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Return True if the job has ended."""
        return self in (Status.FINISHED, Status.FAILED)


class HoldingPeriod(Frozen):
    """Period in which a job held accelerators.

    Attributes:
        machine: Machine of the accelerators, or the first of several.
        accelerators: Number of accelerators on all machines together.
        others: Further machines, with the number of accelerators on each.
    """

    machine: str
    accelerators: int
    begin_seconds: float
    end_seconds: float
    others: Places = ()

    @property
    def seconds(self) -> float:
        """Length of the period."""
        return self.end_seconds - self.begin_seconds

    @property
    def places(self) -> Places:
        """Return all machines, with the number of accelerators on each."""
        return ((self.machine, self.accelerators - sum(count for _, count in self.others)), *self.others)


class Seen(Frozen):
    """Measurements of a job on one accelerator type, from which later fleets predict similar jobs.

    Attributes:
        train_seconds: Training time, without starts and moves.
        start_seconds: Seconds from the decision to start the job to its first step; None if the job did not start on
            this type.
        checkpoint_seconds: For each stop, from the decision until the accelerators were released.
        restore_seconds: For each restart, from the decision to the next step.
    """

    train_seconds: float = 0.0
    start_seconds: float | None = None
    checkpoint_seconds: tuple[float, ...] = ()
    restore_seconds: tuple[float, ...] = ()


class JobRecord(Frozen):
    """Saved state of one job of a live fleet.

    Attributes:
        share: Completed share of the job's longest schedule at the last checkpoint.
        pace: Measured seconds of the whole job by accelerator type.
        stretches: Periods in which the job held accelerators.
        waiting_since: Time at which the job last began to wait.
        ideal_seconds: Time that the job's progress would take under ideal conditions, alone and consolidated.
        preemptions: Number of stops after which the job waited.
        migrations: Number of moves to other accelerators.
        losses: How often in a row the job's process or machine died before a new checkpoint.
        because: Reason of the job's failure.
        figures: Quality of the trained model.
        seen: Measurements by accelerator type.
        is_whole: True if no step was repeated, so that the times are those of one complete training run.
    """

    name: str
    status: Status = Status.COMING
    share: float = 0.0
    pace: dict[str, float] = Field(default_factory=dict)
    stretches: tuple[HoldingPeriod, ...] = ()
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
    """Record of a fleet.

    Attributes:
        begun_at: Begin of the fleet, in seconds since 1970; all its times are relative to this.
        run_id: Its run in MLflow.
    """

    begun_at: float
    run_id: str
    jobs: tuple[JobRecord, ...] = ()
