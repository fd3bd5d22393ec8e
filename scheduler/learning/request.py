"""A request for a learned policy: its files, and what cannot work."""

from pathlib import Path

from scheduler.cluster import Cluster
from scheduler.files import read_fleet
from scheduler.job import Job
from scheduler.learned.file import load_policy, policy_file
from scheduler.learned.objectives import check_objective
from scheduler.policies import LEARNED
from shunter.requests import FleetLearnRequest, FleetRequest


def kept_at(request: FleetLearnRequest) -> Path:
    """Where the policy is kept."""
    return policy_file(f"{LEARNED}:{request.policy}")


def check_learning(request: FleetLearnRequest) -> None:
    """Refuse what cannot work.

    Raises:
        ShunterError: A file cannot be read, or does not say what the objective needs.
    """
    _, cluster = read_learning(request)
    check_objective(request.objective, cluster)
    if request.start_from is not None:
        load_policy(policy_file(f"{LEARNED}:{request.start_from}"))


def read_learning(request: FleetLearnRequest) -> tuple[list[Job], Cluster]:
    """The jobs and the cluster of a request.

    Raises:
        ShunterError: A file cannot be read, or a job can never run.
    """
    return read_fleet(
        FleetRequest(
            jobs=request.jobs, cluster=request.cluster, first_jobs=request.first_jobs, adaptive=request.adaptive
        )
    )
