"""Prefect flow that trains a policy for a fleet and compares it with the other policies."""

from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.runtime import flow_run

from shunter.extensions.fleet.learning.request import check_learning, kept_at
from shunter.extensions.fleet.learning.trainer import Progress
from shunter.extensions.fleet.learning_requests import FleetLearnRequest
from shunter.extensions.fleet.tasks.learning import learn_policy
from shunter.frozen import Frozen
from shunter.masked_console import Console
from shunter.quiet import is_quiet
from shunter.requests import shown
from shunter.tasks.notify import notify
from shunter.tracking.runs import closing, open_run, start_run


class LearnSummary(Frozen):
    """Result: the policy file, its training data and comparison, the underlying figures, and the run in MLflow."""

    file: str
    told: str
    objective: str
    figures: dict[str, float]
    run_id: str


@flow(name="fleet-learn", on_failure=[notify], on_crashed=[notify], persist_result=False)
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
        if flow_run.id is not None:
            create_markdown_artifact(learnt.card.told(), key="fleet-learn", description="A learned policy.")
    return LearnSummary(
        file=str(kept_at(request)),
        told=learnt.card.told(),
        objective=request.objective,
        figures=learnt.rivals,
        run_id=run_id,
    )
