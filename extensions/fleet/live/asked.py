"""Reader of a live fleet's job file, without Prefect, so that a command can reject it before any server starts."""

from pathlib import Path

from shunter.engine.overrides import read_overrides
from shunter.errors import RequestError
from shunter.extensions.fleet.files import OwnJob, read_own_jobs
from shunter.model_families import AUTO, is_ranking
from shunter.models.names import check_model
from shunter.requests import TrainRequest

SETTLED = {"source", "architecture", "training", "placement", "seed", "register_as", "promote"}  # a job's options
LEFT_OUT = {"baselines", "fixed_threads", "plan", "priority"}
OF_ONE_MACHINE = {"explore", "embedding_memory"}


def read_fleet_jobs(path: Path) -> list[tuple[OwnJob, TrainRequest]]:
    """Read and check the jobs of a file, each with the request of its training.

    Raises:
        RequestError: The file is not YAML in Shunter's format, or a job has options that a fleet does not support.
    """
    found = []
    for own in read_own_jobs(path):
        if own.train is None:
            raise RequestError(
                f"job {own.name!r} of {path} does not state what to train: add `train`, such as train: "
                "{data: clicks.csv, model: dlrm}"
            )
        check_training(own, own.train)
        found.append((own, own.train))
    names = [own.name for own, _ in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RequestError(f"two jobs of {path} are called {twice!r}: give each job its own name")
    return found


def check_training(own: OwnJob, request: TrainRequest) -> None:
    """Raise for options that a single training run with fixed settings does not support.

    Raises:
        RequestError: An option is unsupported; the message names the job and the options to remove.
    """
    check_model(request.model)
    told = f"job {own.name!r}"
    if request.model == AUTO or is_ranking(request.model):
        raise RequestError(
            f"{told} requests the model {request.model}, but a fleet trains one click model with fixed "
            "settings: name a model family such as dlrm"
        )
    read_overrides(request.model, request.architecture.settings)
    others = [
        *sorted(request.model_fields_set - SETTLED),
        *sorted(request.training.model_fields_set & LEFT_OUT),
        *sorted(request.placement.model_fields_set & OF_ONE_MACHINE),
    ]
    if len(request.placement.sizes or ()) > 1:
        others.append("several batch sizes")
    if others:
        raise RequestError(
            f"{told} requests {', '.join(others)}, but a fleet runs one training run with fixed settings "
            "per job: leave the option out, or use `shunter train`"
        )
