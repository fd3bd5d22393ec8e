"""Measurements of past live fleets: training times by accelerator, and times to start and move jobs."""

import hashlib
from collections.abc import Iterable
from statistics import median

from pydantic import PositiveInt
from pydantic_core import to_json

from shunter.engine.job import ClickJob
from shunter.extensions.fleet.job import COSTS
from shunter.frozen import Frozen
from shunter.tracking.history import read_runs
from shunter.tracking.runs import child_run

NEWEST = 400  # number of jobs that are read back
NAME, KEY, ACCELERATOR, COUNT = "job.name", "job.training", "job.accelerator", "job.accelerators"


def key_of(training: ClickJob, processes: int = 1) -> str:
    """Return a key that is equal for training jobs with the same work and the same number of processes."""
    told = (
        training.dataset.fingerprint,
        training.spec,
        training.hyperparameters,
        training.schedule,
        training.execution.batch_size,
    )
    key = hashlib.sha256(to_json(told)).hexdigest()[:16]
    return key if processes == 1 else f"{key}-p{processes}"


class PastJob(Frozen):
    """One job of a past live fleet; unmeasured fields are None.

    Attributes:
        training: Key of the training, by `key_of`.
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
            measured = {name: run.metrics.get(f"job.{name}") for name in ("train_seconds", *COSTS)}
            found.append(
                PastJob(
                    training=run.params[KEY],
                    accelerator=run.params[ACCELERATOR],
                    accelerators=int(run.params[COUNT]),
                    **measured,
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
        measured = job.model_dump(exclude={"training", "accelerator", "accelerators"}, exclude_none=True)
        run.log_metrics({f"job.{name}": value for name, value in measured.items()})
