"""The jobs of a live fleet: what each of them trains, settled before the first one starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.config import Execution, Schedule
from engine.data.dataset import Dataset
from engine.fixed import check_fixed, read_fixed
from engine.job import ClickJob, TrainingJob
from ingestion.request import ingest_request
from models.graph import GRAPH_FAMILIES
from models.names import AUTO, check_model
from models.registry import model_spec
from scheduler.files import OwnJob, read_own_jobs
from scheduler.job import Job
from search.space.learning import USUAL_BATCH_SIZE, default_hyperparameters, weights_of_tasks
from shunter.errors import RequestError
from shunter.requests import TrainRequest

PATIENCE = 2  # epochs without a better validation, as of a member of an ensemble
SETTLED = {"source", "architecture", "training", "placement", "seed", "register_as", "promote"}  # what a job can ask
LEFT_OUT = {"baselines", "processes", "fixed_threads"}


@dataclass(frozen=True)
class FleetJob:
    """One job, ready to be trained.

    Attributes:
        job: As a policy sees it.
        request: What was asked for.
        dataset: Its data.
        training: The training; its execution is settled where it runs.
    """

    job: Job
    request: TrainRequest
    dataset: Dataset
    training: ClickJob

    @property
    def batch_size(self) -> int:
        """Samples in a step, the same wherever it runs."""
        return self.training.execution.batch_size


def read_fleet_jobs(path: Path) -> list[tuple[OwnJob, TrainRequest]]:
    """The jobs of a file, each with its request, checked.

    Raises:
        RequestError: The file is no YAML of our own, or a job asks for what a fleet does not do.
    """
    found = []
    for own in read_own_jobs(path):
        if own.train is None:
            raise RequestError(
                f"job {own.name!r} of {path} says nothing about what to train: give it train, such as "
                "train: {data: clicks.csv, model: dlrm}"
            )
        _check(own, own.train)
        found.append((own, own.train))
    names = [own.name for own, _ in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RequestError(f"two jobs of {path} are called {twice!r}: give each its own name")
    return found


def prepare_jobs(
    asked: Sequence[tuple[OwnJob, TrainRequest]], say: Callable[[str], None] = lambda sentence: None
) -> list[FleetJob]:
    """Ingest the data of each job, or find it in the cache, and settle its training.

    Raises:
        ShunterError: A log cannot be read, or a model cannot be built for it.
    """
    found = []
    for own, request in asked:
        dataset, report = ingest_request(request)
        if not report.reused:
            say(f"{report.rows:,} rows of {dataset.name} ingested for {own.name}.")
        found.append(FleetJob(_rigid(own), request, dataset, training_of(request, dataset)))
    return found


def training_of(request: TrainRequest, dataset: Dataset) -> ClickJob:
    """One training at the settings that a request fixes, the rest as is usual in its family.

    Raises:
        RequestError: No model of these features can be built with them.
    """
    fixed = read_fixed(request.model, request.architecture.set)
    check_fixed(request.model, fixed, dataset.features)
    weights = weights_of_tasks(request.training.task_weights, dataset.features.tasks)
    usual = replace(default_hyperparameters(request.model), task_weights=weights)
    sizes = request.placement.sizes
    return TrainingJob(
        dataset,
        model_spec(request.model, **fixed.architecture),
        replace(usual, **fixed.learning),
        Execution(batch_size=sizes[0] if sizes else USUAL_BATCH_SIZE),
        Schedule(
            max_epochs=request.longest_epochs,
            patience=fixed.patience or PATIENCE,
            seed=request.seed,
            select_by=request.training.select_by.value,
        ),
    )


def _rigid(own: OwnJob) -> Job:
    """A job as a policy sees it, on as many accelerators as it asks for: on others it would round otherwise."""
    return own.model_copy(update={"speedups": {}}).job()


def _check(own: OwnJob, request: TrainRequest) -> None:
    """Refuse what one training at fixed settings cannot do.

    Raises:
        RequestError: The sentence names the job and what to leave out.
    """
    check_model(request.model)
    told = f"job {own.name!r}"
    if request.model == AUTO or request.model in GRAPH_FAMILIES:
        raise RequestError(
            f"{told} asks for the model {request.model}, and a fleet trains one model of clicks at fixed settings: "
            "name a family such as dlrm"
        )
    read_fixed(request.model, request.architecture.set)
    others = [*sorted(request.model_fields_set - SETTLED), *sorted(request.training.model_fields_set & LEFT_OUT)]
    if len(request.placement.sizes or ()) > 1:
        others.append("several batch sizes")
    if others:
        raise RequestError(
            f"{told} asks for {', '.join(others)}, and a fleet trains it once, in one process, at fixed settings: "
            "leave that out, or run `shunter train`"
        )
