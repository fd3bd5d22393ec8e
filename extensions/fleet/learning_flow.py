"""Prefect flow that trains a policy for a fleet and compares it with the other policies."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from shunter.extensions.fleet.duration_model import DurationModel
from shunter.extensions.fleet.learned.file import load_policy, policy_file, save_policy
from shunter.extensions.fleet.learning.learn import LearnedPolicy, learn
from shunter.extensions.fleet.learning.request import check_learning, policy_path, read_learning
from shunter.extensions.fleet.learning.trainer import Plan, Progress
from shunter.extensions.fleet.learning_requests import FleetLearnRequest
from shunter.extensions.fleet.policies import LEARNED
from shunter.extensions.fleet.tasks.jobs import training_of_own
from shunter.frozen import Frozen
from shunter.masked_console import Console
from shunter.quiet import is_quiet
from shunter.requests import shown
from shunter.tasks.notify import notify
from shunter.tasks.results import markdown_table, show_result
from shunter.tasks.run_names import named_by
from shunter.tracking.reports import log_files
from shunter.tracking.runs import closing, open_run, start_run


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
    run_id = start_run(
        f"{request.policy} for {Path(request.jobs).stem}", "fleet", flow_run_id=flow_run.get_id()
    )  # fmt: skip
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
    jobs, cluster = read_learning(request, DurationModel(training_of_own))
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
    run.log_metrics({f"rivals.{name}": value for name, value in learnt.rivals.items()})
    run.log_metrics({f"strategies.{name}": value for name, value in learnt.strategies.items()})
    run.log_metrics({f"teachers.{name}": value for name, value in learnt.teachers.items()})
    run.set_tags({"schedule.source": "simulated"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / policy_path(request).name
        save_policy(path, learnt.card, learnt.members)
        log_files(run_id, [path])
    return learnt
