"""Measurements of past live fleets: training times by accelerator, and times to start and move jobs."""

from collections.abc import Iterable
from statistics import median

from pydantic import PositiveInt

from shunter.frozen import Frozen
from shunter.tracking.history import read_runs
from shunter.tracking.runs import child_run

NEWEST = 400  # number of jobs that are read back
NAME, KEY, ACCELERATOR, COUNT = "job.name", "job.training", "job.accelerator", "job.accelerators"


class PastJob(Frozen):
    """One job of a past live fleet; unmeasured fields are None.

    Attributes:
        training: Key of the training, by `shunter.extensions.fleet.own_training.key_of`.
        accelerator: Accelerator type.
        train_seconds: Seconds from the job's first step to its end, without starts and moves.
        start_seconds: Seconds from the decision to start the job to its first step.
        checkpoint_seconds: Seconds from the decision to stop the job until it had released its accelerators.
        restore_seconds: Seconds from the decision to restart the job to its next step.
        server_memory_gib: Server memory reserved for each of the job's processes, predicted or stated.
    """

    training: str
    accelerator: str
    accelerators: PositiveInt
    train_seconds: float | None = None
    start_seconds: float | None = None
    checkpoint_seconds: float | None = None
    restore_seconds: float | None = None
    server_memory_gib: float | None = None

    @property
    def figures(self) -> dict[str, float]:
        """Return the values of the job by their names in MLflow."""
        figures = self.model_dump(exclude={"training", "accelerator", "accelerators"}, exclude_none=True)
        return {f"job.{name}": value for name, value in figures.items()}


class PastJobs:
    """Past jobs of live fleets, with medians of their times.

    Args:
        jobs: Past jobs in any order.
    """

    def __init__(self, jobs: Iterable[PastJob] = ()) -> None:
        self._jobs = list(jobs)

    def train_seconds(self, training: str, accelerator: str, accelerators: int) -> float | None:
        """Return the median time of a training run on a number of accelerators of a type; None without past runs."""
        asked = (training, accelerator, accelerators)
        found = [
            one.train_seconds
            for one in self._jobs
            if (one.training, one.accelerator, one.accelerators) == asked and one.train_seconds is not None
        ]
        return median(found) if found else None

    def seconds(self, cost: str) -> dict[str, float]:
        """Return the median time to start, save or restore any training, by accelerator type.

        Args:
            cost: `start_seconds`, `checkpoint_seconds` or `restore_seconds`.
        """
        found: dict[str, list[float]] = {}
        for one in self._jobs:
            value = getattr(one, cost)
            if value is not None:
                found.setdefault(one.accelerator, []).append(value)
        return {accelerator: median(values) for accelerator, values in found.items()}


def read_past_jobs() -> PastJobs:
    """Read the newest jobs of live fleets from the tracking store; none if there is no store.

    Raises:
        TrackingError: The store cannot be read.
    """
    found = []
    for run in read_runs(("job",), limit=NEWEST):
        if KEY in run.params and run.status == "FINISHED":
            figures = {
                name: run.metrics[f"job.{name}"]
                for name in ("train_seconds", "start_seconds", "checkpoint_seconds", "restore_seconds")
                if f"job.{name}" in run.metrics
            }
            found.append(
                PastJob(
                    training=run.params[KEY],
                    accelerator=run.params[ACCELERATOR],
                    accelerators=int(run.params[COUNT]),
                    **figures,
                )
            )
    return PastJobs(found)


def log_past_job(parent_run_id: str, name: str, job: PastJob) -> None:
    """Log a job in a child run of its fleet's run.

    Raises:
        TrackingError: The store cannot be written.
    """
    with child_run(parent_run_id, name, "job") as run:
        run.log_params({NAME: name, KEY: job.training, ACCELERATOR: job.accelerator, COUNT: job.accelerators})
        run.log_metrics(job.figures)
