"""Check of a request to learn a scheduling policy, and loading of its input files."""

from pathlib import Path

from shunter.extensions.fleet.cluster import Cluster
from shunter.extensions.fleet.files import PredictTimes, check_fleet, read_fleet
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.learned.file import load_policy, policy_file
from shunter.extensions.fleet.learned.objectives import check_objective
from shunter.extensions.fleet.learning_requests import FleetLearnRequest
from shunter.extensions.fleet.policies import LEARNED
from shunter.extensions.fleet.requests import FleetRequest


def policy_path(request: FleetLearnRequest) -> Path:
    """Return the path of the policy file."""
    return policy_file(f"{LEARNED}:{request.policy}")


def check_learning(request: FleetLearnRequest) -> None:
    """Raise if the request is invalid.

    Raises:
        ShunterError: A file cannot be read, or lacks information that the objective needs.
    """
    _, cluster = check_fleet(_fleet(request))
    check_objective(request.objective, cluster)
    if request.start_from is not None:
        load_policy(policy_file(f"{LEARNED}:{request.start_from}"))


def read_learning(request: FleetLearnRequest, predict_times: PredictTimes) -> tuple[list[Job], Cluster]:
    """Read the jobs and the cluster of a request.

    Args:
        request: Request that names the files.
        predict_times: Function that predicts the times of jobs that state none.

    Raises:
        ShunterError: A file cannot be read, or a job can never run.
    """
    return read_fleet(_fleet(request), predict_times)


def _fleet(request: FleetLearnRequest) -> FleetRequest:
    return FleetRequest(
        jobs=request.jobs, cluster=request.cluster, first_jobs=request.first_jobs, adaptive=request.adaptive
    )
