"""Prefect flows of a fleet: compare policies on a queue of jobs in simulation, train one, or run the queue live."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from shunter.extensions.fleet.duration_model import DurationModel, PredictedTime
from shunter.extensions.fleet.files import read_fleet
from shunter.extensions.fleet.learned.file import check_learning, load_policy, policy_file, policy_path, save_policy
from shunter.extensions.fleet.learning.learn import LearnedPolicy, learn
from shunter.extensions.fleet.learning.trainer import Plan, Progress
from shunter.extensions.fleet.live.asked import read_fleet_jobs
from shunter.extensions.fleet.policies import LEARNED, policy_names, trained_policies
from shunter.extensions.fleet.requests import FleetLearnRequest, FleetRequest, FleetRunRequest
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.tasks import Fleet, log_schedule, publish_fleet, simulate_policy
from shunter.extensions.fleet.tasks.jobs import prepare_jobs, training_of_own
from shunter.frozen import Frozen
from shunter.masked_console import Console, is_quiet
from shunter.requests import shown
from shunter.tasks.flow_runs import named_by, notify
from shunter.tasks.run_log import markdown_table, show_result
from shunter.tracking.reports import log_files
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
    title = f"{Path(request.jobs).stem} on {Path(request.cluster).stem}"
    run_id = start_run(title, "fleet", flow_run_id=flow_run.get_id())
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
            driver, times = run_jobs(request, jobs, state, record, say)
            schedule = driver.schedule()
            schedules = [schedule] if schedule.outcomes else []
            if schedules:
                with child_run(record.run_id, name, "schedule") as run:
                    log_schedule(run, schedule, "measured")
            page = publish_fleet(record.run_id, title, schedules, "measured", times)
        failed = {name: one.because for name, one in driver.jobs.items() if one.because}
        if not failed:
            state.finish()
        return FleetRunSummary(
            figures={schedule.policy: figures(schedule) for schedule in schedules},
            quality={name: one.figures for name, one in driver.jobs.items() if not one.because},
            failed=failed,
            page=page,
            run_id=record.run_id,
            resumed=state.resumed,
            times=tuple(times),
        )


class LearnSummary(Frozen):
    """Result of a policy's training: the policy file, its comparison with other policies, and the run in MLflow."""

    file: str
    told: str
    objective: str
    figures: dict[str, float]
    run_id: str


@flow(
    name="fleet-learn",
    flow_run_name=named_by("jobs", "policy"),
    on_failure=[notify],
    on_crashed=[notify],
    persist_result=False,
)
def fleet_learn(
    request: Annotated[FleetLearnRequest, shown(FleetLearnRequest())] = FleetLearnRequest(),
) -> LearnSummary:
    """Train a policy in the simulator, and compare it with others on jobs outside the training set.

    Args:
        request: Jobs, cluster and objective.
    """
    check_learning(request)
    name = f"{request.policy} for {Path(request.jobs).stem}"
    run_id = start_run(name, "fleet", flow_run_id=flow_run.get_id())
    with closing(run_id), Console(stderr=True, quiet=is_quiet()).status("Learning") as status:
        open_run(run_id).log_params({f"request.{name}": value for name, value in request.flat().items() if value})

        def progress(number: int, course: Progress) -> None:
            status.update(f"Learning: round {number} of {request.rounds}, {course.steps[-1]:,} simulated choices")

        learnt = learn_policy(request, run_id, progress)
        rivals = [{"policy": name, request.objective: f"{value:.4g}"} for name, value in learnt.rivals.items()]
        show_result("fleet-learn", learnt.card.description(), markdown_table(rivals), run_id=run_id)
    return LearnSummary(
        file=str(policy_path(request)),
        told=learnt.card.description(),
        objective=request.objective,
        figures=learnt.rivals,
        run_id=run_id,
    )


@task(name="learn", cache_policy=NO_CACHE, persist_result=False)
def learn_policy(
    request: FleetLearnRequest, run_id: str, on_round: Callable[[int, Progress], None] | None = None
) -> LearnedPolicy:
    """Train a policy, save it in Shunter's home folder, and log it and its training curve to the run.

    Args:
        request: Jobs, cluster and objective.
        run_id: Run in MLflow.
        on_round: Called after each round.
    """
    jobs, cluster = read_fleet(request, DurationModel(training_of_own))
    past = None if request.start_from is None else load_policy(policy_file(f"{LEARNED}:{request.start_from}"))[1][0]
    learnt = learn(
        jobs,
        cluster,
        request.objective,
        trained_on=f"{Path(request.jobs).name} on {Path(request.cluster).name}",
        plan=Plan(rounds=request.rounds),
        seed=request.seed,
        past=past,
        on_round=on_round,
    )
    save_policy(policy_path(request), learnt.card, learnt.members)
    run = open_run(run_id)
    run.log_params({f"learned.{name}": value for name, value in learnt.card.model_dump().items() if value is not None})
    run.log_series({"learning.cost": learnt.progress.costs, "learning.steps": learnt.progress.steps})
    compared = {"rivals": learnt.rivals, "strategies": learnt.strategies, "teachers": learnt.teachers}
    run.log_metrics({f"{kind}.{name}": value for kind, of in compared.items() for name, value in of.items()})
    run.set_tags({"schedule.source": "simulated"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / policy_path(request).name
        save_policy(path, learnt.card, learnt.members)
        log_files(run_id, [path])
    return learnt


def _say() -> Callable[[str], None]:
    return Console(stderr=True, quiet=is_quiet(), emoji=False, markup=False, highlight=False, soft_wrap=True).print
