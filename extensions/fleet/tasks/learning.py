"""Step `learn` of a fleet: train a policy, save it in the home, and log its training in MLflow."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.extensions.fleet.duration_model import DurationModel
from shunter.extensions.fleet.learned.file import load_policy, policy_file, save_policy
from shunter.extensions.fleet.learning.learn import Learnt, learn
from shunter.extensions.fleet.learning.request import kept_at, read_learning
from shunter.extensions.fleet.learning.trainer import Plan, Progress
from shunter.extensions.fleet.learning_requests import FleetLearnRequest
from shunter.extensions.fleet.policies import LEARNED
from shunter.extensions.fleet.tasks.jobs import training_of_own
from shunter.tracking.reports import log_files
from shunter.tracking.runs import open_run


@task(name="learn", cache_policy=NO_CACHE, persist_result=False)
def learn_policy(
    request: FleetLearnRequest, run_id: str, on_round: Callable[[int, Progress], None] | None = None
) -> Learnt:
    """Train a policy; save it in the home and with the run, and log the training curve as metrics of the run.

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
    save_policy(kept_at(request), learnt.card, learnt.members)
    run = open_run(run_id)
    run.log_params({f"learned.{name}": value for name, value in learnt.card.model_dump().items() if value is not None})
    run.log_series({"learning.cost": learnt.progress.costs, "learning.steps": learnt.progress.steps})
    run.log_metrics({f"rivals.{name}": value for name, value in learnt.rivals.items()})
    run.log_metrics({f"strategies.{name}": value for name, value in learnt.strategies.items()})
    run.log_metrics({f"teachers.{name}": value for name, value in learnt.teachers.items()})
    run.set_tags({"schedule.source": "simulated"})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / kept_at(request).name
        save_policy(path, learnt.card, learnt.members)
        log_files(run_id, [path])
    return learnt
