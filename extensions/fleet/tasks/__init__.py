"""Step `simulate` of a fleet: simulate a policy on the jobs, and log the schedule in its own run."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.extensions.fleet.duration_model import DurationModel, PredictedTime
from shunter.extensions.fleet.files import read_fleet
from shunter.extensions.fleet.page import fleet_page, markdown_table
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.requests import FleetRequest
from shunter.extensions.fleet.schedule import HOUR, Schedule, figures
from shunter.extensions.fleet.simulator import simulate
from shunter.extensions.fleet.tasks.jobs import training_of_own
from shunter.tasks.run_log import show_result
from shunter.tracking.reports import log_files
from shunter.tracking.runs import Run, child_run

PAGE = "fleet.html"


class Fleet:
    """Jobs and cluster for all policies, read once. Not a dataclass, because Prefect would traverse all its jobs.

    Args:
        request: Request that names the files.
        say: Called with a message for each type whose time cannot be predicted.

    Attributes:
        times: Time of each job in Shunter's own format by accelerator type, and the source of that time.

    Raises:
        ShunterError: A file cannot be read, or a job can never run.
    """

    def __init__(self, request: FleetRequest, say: Callable[[str], None] = lambda sentence: None) -> None:
        predict_times = DurationModel(training_of_own, say)
        self.jobs, self.cluster = read_fleet(request, predict_times)
        self.times: Sequence[PredictedTime] = predict_times.times


@task(name="simulate", task_run_name="simulate-{policy}", cache_policy=NO_CACHE, persist_result=False)
def simulate_policy(
    fleet: Fleet, policy: str, run_id: str, on_progress: Callable[[int, int], None] | None = None
) -> Schedule:
    """Simulate the jobs under a policy, and log the metrics in a child run of `run_id`."""
    jobs, cluster = fleet.jobs, fleet.cluster
    with child_run(run_id, policy, "schedule") as run:
        schedule = simulate(jobs, cluster, make_policy(policy), on_progress)
        log_schedule(run, schedule, "simulated")
    return schedule


def log_schedule(run: Run, schedule: Schedule, source: str) -> None:
    """Log the metrics of a schedule in a run, with their source: simulated or measured."""
    sizes = {"schedule.jobs": len(schedule.outcomes), "schedule.accelerators": schedule.cluster.count}
    run.log_params({"schedule.policy": schedule.policy, **sizes})
    run.log_metrics(figures(schedule))
    run.set_tags({"schedule.source": source})


def publish_fleet(
    run_id: str,
    title: str,
    schedules: Sequence[Schedule],
    source: str = "simulated",
    times: Sequence[PredictedTime] = (),
) -> str:
    """Log the HTML page of the fleet to the run, publish its table in Prefect, and return the page.

    Args:
        run_id: MLflow run of the fleet.
        title: Description of the jobs and the cluster.
        schedules: Schedule of each policy.
        source: Source of the metrics: simulated or measured.
        times: Predicted time of each job.
    """
    values = [figures(schedule) for schedule in schedules]
    page = fleet_page(schedules, values, title, source, times)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / PAGE
        path.write_text(page, encoding="utf-8")
        log_files(run_id, [path])
    result = f"{title}: no job has completed."
    if schedules:
        pairs = zip(values, schedules, strict=True)
        hours, policy = min((one["jct.mean_seconds"] / HOUR, schedule.policy) for one, schedule in pairs)
        of = f" of {len(schedules)} policies" if len(schedules) > 1 else ""
        result = f"{title}: under {policy}{of} a job takes {hours:.3g} h from arrival to end on average ({source})."
    files = {"Page with the schedules": PAGE}
    show_result("fleet", result, markdown_table(schedules, values), run_id=run_id, files=files)
    return page
