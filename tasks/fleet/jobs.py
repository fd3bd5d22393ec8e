"""The jobs of a live fleet: what each of them trains, settled before the first one starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.config import Execution, Schedule
from engine.data.dataset import Dataset
from engine.fixed import check_fixed, read_fixed
from engine.job import ClickJob, TrainingJob
from ingestion.request import ingest_request
from models.registry import model_spec
from scheduler.files import OwnJob
from scheduler.job import Job
from search.space.learning import USUAL_BATCH_SIZE, default_hyperparameters, weights_of_tasks
from shunter.requests import TrainRequest

PATIENCE = 2  # epochs without a better validation, as of a member of an ensemble


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
