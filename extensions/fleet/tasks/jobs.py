"""Jobs of a live fleet, whose training runs are determined before the first one starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.job import ClickJob, TrainingJob
from shunter.engine.overrides import check_overrides, read_overrides
from shunter.extensions.fleet.duration_model import DurationModel, is_processor
from shunter.extensions.fleet.files import OwnJob
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.live.asked import check_training
from shunter.ingestion.request import ingest_request
from shunter.models.registry import model_spec
from shunter.requests import TrainRequest
from shunter.search.space.learning import USUAL_BATCH_SIZE, default_hyperparameters, weights_of_tasks

PATIENCE = 2  # epochs without improvement on validation, as for members of an ensemble


@dataclass(frozen=True)
class FleetJob:
    """One job, ready to be trained.

    Attributes:
        own: Job as given in the job file.
        request: Request of the job's training.
        dataset: Data set.
        training: Training job, whose execution settings are chosen with the placement.
    """

    own: OwnJob
    request: TrainRequest
    dataset: Dataset
    training: ClickJob

    @property
    def name(self) -> str:
        """Name of the job, unique in a fleet."""
        return self.own.name

    @property
    def job(self) -> Job:
        """Job for a policy, rigid: on other numbers of accelerators its results would differ by rounding."""
        return self.own.model_copy(update={"speedups": {}}).job()


def prepare_jobs(
    asked: Sequence[tuple[OwnJob, TrainRequest]], say: Callable[[str], None] = lambda sentence: None
) -> list[FleetJob]:
    """Ingest the data of each job, or find it in the cache, and determine its training.

    Raises:
        ShunterError: A log cannot be read, or a model cannot be built for it.
    """
    found = []
    for own, request in asked:
        dataset, report = ingest_request(request)
        if not report.reused:
            say(f"{report.rows:,} rows of {dataset.name} ingested for {own.name}.")
        found.append(FleetJob(own, request, dataset, training_of(request, dataset)))
    return found


def training_of(request: TrainRequest, dataset: Dataset) -> ClickJob:
    """Return one training run with the settings that a request fixes, and default settings of its family.

    Raises:
        RequestError: No model with these settings can be built for the features.
    """
    overrides = read_overrides(request.model, request.architecture.settings)
    check_overrides(request.model, overrides, dataset.features)
    weights = weights_of_tasks(request.training.task_weights, dataset.features.tasks)
    usual = replace(default_hyperparameters(request.model), task_weights=weights)
    sizes = request.placement.sizes
    return TrainingJob(
        dataset,
        model_spec(request.model, **overrides.architecture),
        replace(usual, **overrides.learning),
        Execution(batch_size=sizes[0] if sizes else USUAL_BATCH_SIZE),
        Schedule(
            max_epochs=request.longest_epochs,
            patience=overrides.patience or PATIENCE,
            seed=request.seed,
            select_by=request.training.select_by.value,
        ),
    )


def training_of_own(own: OwnJob) -> ClickJob:
    """Return the training of a job, with its data from the cache.

    Raises:
        ShunterError: The job has options that a fleet does not support, or its data cannot be read.
    """
    assert own.train is not None, f"{own.name} trains nothing"
    check_training(own, own.train)
    return training_of(own.train, ingest_request(own.train)[0])


def with_times(jobs: Sequence[FleetJob], types: Sequence[str], predict_times: DurationModel) -> list[FleetJob]:
    """Return the jobs; add predicted times for the accelerator types to jobs without stated times.

    Raises:
        RequestError: The time of a job cannot be predicted.
    """
    asked = [by_type(job.own, types) for job in jobs]
    return [replace(job, own=own) for job, own in zip(jobs, predict_times(asked, types), strict=True)]


def by_type(own: OwnJob, types: Sequence[str]) -> OwnJob:
    """Return the job with its number of accelerators by type: the given number of cores, or one GPU per process.

    The job is unchanged if its numbers are already by type or no type is a GPU.
    """
    if isinstance(own.accelerators, dict) or all(is_processor(name) for name in types):
        return own
    cores = {name: own.accelerators for name in types if is_processor(name)}
    return own.model_copy(update={"accelerators": cores}) if own.accelerators != own.processes else own
