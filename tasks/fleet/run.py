"""Step `run`: a policy drives trainings on a live cluster, and what it did is kept like a simulated schedule."""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import Field
from pydantic_core import to_json

from engine.executors.ray.cluster import open_cluster
from scheduler.files import OwnJob, of_catalogue
from scheduler.live.driver import Driver, Surroundings
from scheduler.live.record import FleetRecord, JobRecord, Status
from scheduler.policies import make_policy
from scheduler.schedule import Schedule
from shunter.frozen import Frozen
from shunter.requests import FleetRunRequest, TrainRequest
from shunter.settings import Settings
from tasks.fleet.jobs import FleetJob
from tasks.fleet.trainings import RayTrainings
from tasks.run_state import StateFolder

RECORD = "fleet"


class JobEnd(Frozen):
    """What became of a job: what its model reached, or why it failed."""

    name: str
    figures: dict[str, float] = Field(default_factory=dict)
    because: str = ""


@dataclass(frozen=True)
class FleetEnd:
    """What a fleet came to.

    Attributes:
        schedule: Who ran where, measured; without the jobs that failed.
        jobs: Each job's end.
    """

    schedule: Schedule
    jobs: list[JobEnd]


def fleet_state(asked: Sequence[tuple[OwnJob, TrainRequest]], *, fresh: bool) -> StateFolder:
    """The folder of a fleet: that of its jobs, whatever the cluster and the policy, so that both may change."""
    text = b"".join(to_json(own.model_dump(mode="json", exclude_none=True)) for own, _ in asked)
    key = hashlib.sha256(text).hexdigest()[:16]
    return StateFolder(Settings().runs_directory / f"fleet-{key}", "fleet", fresh=fresh)


def open_record(state: StateFolder, start_run: Callable[[str | None], str]) -> FleetRecord:
    """What an earlier driver has left, with its failed jobs to be tried again; or a fleet that begins now.

    Args:
        state: The fleet's folder.
        start_run: Opens the run in MLflow, that of the earlier driver where there was one.
    """
    kept = state.recall(RECORD, FleetRecord)
    if kept is None:
        record = FleetRecord(begun_at=time.time(), run_id=start_run(None))
    else:
        jobs = tuple(_again(job) for job in kept.jobs)
        record = kept.model_copy(update={"run_id": start_run(kept.run_id), "jobs": jobs})
    state.remember(RECORD, record)
    return record


def run_jobs(
    request: FleetRunRequest,
    jobs: Iterable[FleetJob],
    state: StateFolder,
    record: FleetRecord,
    say: Callable[[str], None],
) -> FleetEnd:
    """Drive the jobs on the cluster until all have ended.

    Args:
        request: Cluster and policy.
        jobs: The jobs.
        state: The fleet's folder, locked.
        record: What an earlier driver has left.
        say: Told in sentences what happens.

    Raises:
        ShunterError: See `scheduler.live.driver.Driver.run`.
        KeyboardInterrupt: Ctrl-C; what ran has saved its state.
    """
    by_name = {job.job.name: job for job in jobs}
    with open_cluster(request.cluster, request.cluster_resource) as cluster:
        trainings = RayTrainings(
            cluster,
            address=request.cluster,
            resource=request.cluster_resource,
            jobs=by_name,
            directory=state.directory / "jobs",
            run_id=record.run_id,
            checkpoint_seconds=request.checkpoint_seconds,
        )
        types = {machine.accelerator for machine in trainings.machines()}
        surroundings = Surroundings(
            clock=lambda: time.time() - record.begun_at,
            keep=lambda records: state.remember(RECORD, record.model_copy(update={"jobs": records})),
            say=say,
            accelerators={name: kind for name in types if (kind := of_catalogue(name)) is not None},
        )
        with trainings:
            driver = Driver(
                [job.job for job in by_name.values()],
                make_policy(request.policy),
                trainings,
                surroundings,
                record.jobs,
            )
            driver.run()
    ends = [JobEnd(name=name, figures=one.figures, because=one.because) for name, one in driver.jobs.items()]
    return FleetEnd(driver.schedule(), ends)


def _again(job: JobRecord) -> JobRecord:
    """A job that failed is tried again by the next command, once more from its last checkpoint."""
    if job.status is not Status.FAILED:
        return job
    return job.model_copy(update={"status": Status.COMING, "because": "", "losses": 0})
