"""Prefect flows of a fleet: compare policies on a queue of jobs in simulation, or run the queue on a live cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.runtime import flow_run

from shunter.extensions.fleet.duration_model import PredictedTime
from shunter.extensions.fleet.live.asked import read_fleet_jobs
from shunter.extensions.fleet.metrics import figures
from shunter.extensions.fleet.policies import policy_names, trained_policies
from shunter.extensions.fleet.requests import FleetRequest, FleetRunRequest
from shunter.extensions.fleet.tasks import (
    Fleet,
    log_schedule,
    prepare_jobs,
    publish_fleet,
    simulate_policy,
)
from shunter.frozen import Frozen
from shunter.masked_console import Console
from shunter.quiet import is_quiet
from shunter.requests import shown
from shunter.tasks.notify import notify
from shunter.tasks.run_names import named_by
from shunter.tracking.runs import child_run, closing, open_run, start_run


class FleetSummary(Frozen):
    """Comparison of policies: metrics by policy, the HTML page, and the run in MLflow with a child run per policy.

    Attributes:
        told: Description of each learned policy: its training data, and its results in the comparison after training.
        times: Time of each job in Shunter's own format by accelerator type, and the source of that time.
    """

    figures: dict[str, dict[str, float]]
    page: str
    run_id: str
    told: tuple[str, ...] = ()
    times: tuple[PredictedTime, ...] = ()


@flow(
    name="fleet",
    flow_run_name=named_by("jobs", "cluster"),
    on_failure=[notify],
    on_crashed=[notify],
    persist_result=False,
)
def fleet(request: Annotated[FleetRequest, shown(FleetRequest())] = FleetRequest()) -> FleetSummary:
    """Simulate each policy with the jobs on the cluster, and compare the policies.

    Args:
        request: Jobs, cluster and policies.
    """
    names = policy_names(request.policies)
    read = Fleet(request, _say())
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
        page = publish_fleet(
            run_id, f"{Path(request.jobs).name} on {Path(request.cluster).name}", schedules, times=read.times
        )
    values = {schedule.policy: figures(schedule) for schedule in schedules}
    told = tuple(f"{policy.name}: {policy.told}" for policy in trained_policies(names))
    return FleetSummary(figures=values, page=page, run_id=run_id, told=told, times=tuple(read.times))


class FleetRunSummary(Frozen):
    """Result of a live fleet.

    Attributes:
        figures: Measured figures of the schedule by policy; empty if no job completed.
        quality: Quality of each trained job's model.
        failed: Error of each failed job.
        page: HTML page with the schedule.
        run_id: Run in MLflow, with a child run per training.
        resumed: True if an interrupted fleet was resumed.
        times: Predicted time of each job by accelerator type, and the source of that time.
    """

    figures: dict[str, dict[str, float]]
    quality: dict[str, dict[str, float]]
    failed: dict[str, str]
    page: str
    run_id: str
    resumed: bool
    times: tuple[PredictedTime, ...] = ()


@flow(
    name="fleet-run",
    flow_run_name=named_by("jobs", "policy"),
    on_failure=[notify],
    on_crashed=[notify],
    persist_result=False,
)
def fleet_run(
    request: Annotated[FleetRunRequest, shown(FleetRunRequest())] = FleetRunRequest(), fresh: bool = False
) -> FleetRunSummary:
    """Run a queue of jobs on a live cluster under a policy, or resume it.

    Args:
        request: Jobs, cluster and policy.
        fresh: Start anew instead of resuming an interrupted fleet of the same jobs.
    """
    from shunter.extensions.fleet.tasks.run import fleet_state, open_record, run_jobs

    (name,) = policy_names(request.policy)
    asked = read_fleet_jobs(Path(request.jobs))
    say = _say()
    title = f"{Path(request.jobs).stem} on {request.cluster}"
    with fleet_state(asked, fresh=fresh) as state:
        jobs = prepare_jobs(asked, say)
        flow_run_id = flow_run.get_id()
        record = open_record(state, lambda former: start_run(title, "fleet", flow_run_id=flow_run_id, run_id=former))
        with closing(record.run_id, is_resumable=True):
            end = run_jobs(request, jobs, state, record, say)
            schedules = [end.schedule] if end.schedule.outcomes else []
            if schedules:
                with child_run(record.run_id, name, "schedule") as run:
                    log_schedule(run, end.schedule, "measured")
            page = publish_fleet(record.run_id, title, schedules, "measured", end.times)
        failed = {one.name: one.because for one in end.jobs if one.because}
        if not failed:
            state.finish()
        return FleetRunSummary(
            figures={schedule.policy: figures(schedule) for schedule in schedules},
            quality={one.name: one.figures for one in end.jobs if not one.because},
            failed=failed,
            page=page,
            run_id=record.run_id,
            resumed=state.resumed,
            times=tuple(end.times),
        )


def _say() -> Callable[[str], None]:
    return Console(stderr=True, quiet=is_quiet(), emoji=False, markup=False, highlight=False, soft_wrap=True).print
