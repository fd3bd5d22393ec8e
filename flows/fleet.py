"""The flow that says what each policy would do with a queue of trainings on a cluster."""

from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run
from rich.console import Console

from scheduler.metrics import figures
from scheduler.policies import policy_names
from shunter.frozen import Frozen
from shunter.quiet import is_quiet
from shunter.requests import FleetRequest, shown
from tasks.fleet import Fleet, publish_fleet, simulate_policy
from tasks.notify import notify
from tracking.runs import closing, open_run, start_run


class FleetSummary(Frozen):
    """What came out: the figures by policy, the page, the run in MLflow with one below it for each policy."""

    figures: dict[str, dict[str, float]]
    page: str
    run_id: str


@flow(name="fleet", on_failure=[notify], on_crashed=[notify], persist_result=False)
def fleet(request: Annotated[FleetRequest, shown(FleetRequest())] = FleetRequest()) -> FleetSummary:
    """Simulate what each policy would do with the jobs on the cluster, and compare.

    Args:
        request: Jobs, cluster and policies.
    """
    names = policy_names(request.policies)
    read = Fleet(request)
    run_id = start_run(
        f"{Path(request.jobs).stem} on {Path(request.cluster).stem}", "fleet", flow_run_id=flow_run.get_id()
    )
    with closing(run_id), Console(stderr=True, quiet=is_quiet()).status("Simulating") as status:
        open_run(run_id).log_params({f"request.{name}": value for name, value in request.flat().items() if value})
        schedules = []
        for name in names:

            def progress(ended: int, jobs: int, name: str = name) -> None:
                status.update(f"Simulating {name}: {ended:,} of {jobs:,} jobs")

            status.update(f"Simulating {name}")
            schedules.append(simulate_policy(read, name, run_id, progress))
        page = publish_fleet(run_id, request, schedules)
    values = {schedule.policy: figures(schedule) for schedule in schedules}
    return FleetSummary(figures=values, page=page, run_id=run_id)
