"""Step `run` of a fleet: a policy drives jobs on a live cluster, and the schedule is logged like a simulated one."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from pydantic_core import to_json

from shunter.extensions.distributed.executors.ray.cluster import open_cluster
from shunter.extensions.fleet.duration_model import DurationModel, PredictedTime
from shunter.extensions.fleet.files import OwnJob, of_catalogue
from shunter.extensions.fleet.live.driver import Driver, DriverContext
from shunter.extensions.fleet.live.record import FleetRecord, Status
from shunter.extensions.fleet.past import NAME, PastJob, key_of, log_past_job
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.requests import FleetRunRequest
from shunter.extensions.fleet.tasks.jobs import FleetJob, with_times
from shunter.extensions.fleet.tasks.trainings import RayTrainings
from shunter.requests import TrainRequest
from shunter.settings import Settings
from shunter.tasks.run_state import StateFolder
from shunter.tracking.history import read_children

RECORD = "fleet"


def fleet_state(asked: Sequence[tuple[OwnJob, TrainRequest]], *, fresh: bool) -> StateFolder:
    """Return the state folder of a fleet, which depends on its jobs only, so that cluster and policy may change."""
    text = b"".join(to_json(own.model_dump(mode="json", exclude_none=True)) for own, _ in asked)
    key = hashlib.sha256(text).hexdigest()[:16]
    return StateFolder(Settings().runs_directory / f"fleet-{key}", "fleet", fresh=fresh)


def open_record(state: StateFolder, start_run: Callable[[str | None], str]) -> FleetRecord:
    """Return the record that an earlier driver saved, with failed jobs reset for a retry; otherwise a new record.

    Args:
        state: State folder of the fleet.
        start_run: Function that resumes the MLflow run with the given id, or starts a new one for None; returns its id.
    """
    kept = state.recall(RECORD, FleetRecord)
    if kept is None:
        record = FleetRecord(begun_at=time.time(), run_id=start_run(None))
    else:
        again = {"status": Status.COMING, "because": "", "losses": 0}  # from the last checkpoint
        jobs = tuple(job.model_copy(update=again) if job.status is Status.FAILED else job for job in kept.jobs)
        record = kept.model_copy(update={"run_id": start_run(kept.run_id), "jobs": jobs})
    state.remember(RECORD, record)
    return record


def run_jobs(
    request: FleetRunRequest,
    jobs: Iterable[FleetJob],
    state: StateFolder,
    record: FleetRecord,
    say: Callable[[str], None],
) -> tuple[Driver, Sequence[PredictedTime]]:
    """Run the jobs on the cluster until all have ended.

    Args:
        request: Cluster and policy.
        jobs: Jobs to train, with their data sets.
        state: State folder of the fleet, locked.
        record: Record of an earlier driver, or a new one.
        say: Called with progress messages.

    Returns:
        The driver, with the results of the jobs, and the predicted time of each job.

    Raises:
        ShunterError: See `shunter.extensions.fleet.live.driver.Driver.run`.
        KeyboardInterrupt: Ctrl-C; running jobs have saved their state.
    """
    by_name = {job.name: job for job in jobs}
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
        types = sorted({machine.accelerator for machine in trainings.machines()})
        network = cluster.network if len(cluster.nodes) > 1 else None
        predict_times = DurationModel(lambda own: by_name[own.name].training, say, always_memory=True, network=network)
        predicted = with_times(list(by_name.values()), types, predict_times)
        by_name |= {job.name: job for job in predicted}
        context = DriverContext(
            clock=lambda: time.time() - record.begun_at,
            keep=lambda records: state.remember(RECORD, record.model_copy(update={"jobs": records})),
            say=say,
            accelerators={name: kind for name in types if (kind := of_catalogue(name)) is not None},
        )
        with trainings:
            jobs_of_policy = [job.job for job in predicted]
            driver = Driver(jobs_of_policy, make_policy(request.policy), trainings, context, record.jobs)
            driver.run()
    log_measurements(record.run_id, by_name, driver)
    return driver, predict_times.times


def log_measurements(run_id: str, jobs: Mapping[str, FleetJob], driver: Driver) -> None:
    """Log the measurements of each trained job in a child run of the fleet's run; later fleets predict times from them.

    Raises:
        TrackingError: The store cannot be reached.
    """
    kept = {run.params.get(NAME) for run in read_children(run_id, "job")}  # by an earlier driver of this fleet
    for name, one in driver.jobs.items():
        if one.status is Status.FAILED or name in kept:
            continue
        for accelerator, seen in one.costs.seen.items():
            is_all = one.costs.is_whole and len(one.costs.seen) == 1
            past = PastJob(
                training=key_of(jobs[name].training, jobs[name].own.processes),
                accelerator=accelerator,
                accelerators=one.state.job.asks(accelerator),
                train_seconds=seen.train_seconds if is_all else None,
                start_seconds=seen.start_seconds,
                checkpoint_seconds=median(seen.checkpoint_seconds) if seen.checkpoint_seconds else None,
                restore_seconds=median(seen.restore_seconds) if seen.restore_seconds else None,
                server_memory_gib=one.state.job.server_memory_gib or None,
            )
            log_past_job(run_id, name, past)
