"""The jobs of a live fleet: what each of them trains, settled before the first one starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shunter.engine.data.dataset import Dataset
from shunter.engine.job import ClickJob
from shunter.extensions.fleet.files import OwnJob
from shunter.extensions.fleet.foretell import Foreteller, is_processor
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.live.asked import check_training
from shunter.extensions.fleet.own_training import training_of
from shunter.ingestion.request import ingest_request
from shunter.requests import TrainRequest


@dataclass(frozen=True)
class FleetJob:
    """One job, ready to be trained.

    Attributes:
        own: As it was asked for.
        request: What it trains.
        dataset: Its data.
        training: The training; its execution is settled where it runs.
    """

    own: OwnJob
    request: TrainRequest
    dataset: Dataset
    training: ClickJob

    @property
    def name(self) -> str:
        """Its name, once in a fleet."""
        return self.own.name

    @property
    def job(self) -> Job:
        """As a policy sees it, on as many accelerators as it asks for: on others it would round otherwise."""
        return self.own.model_copy(update={"speedups": {}}).job()

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
        found.append(FleetJob(own, request, dataset, training_of(request, dataset)))
    return found


def training_of_own(own: OwnJob) -> ClickJob:
    """The training of a job, with its data from the cache.

    Raises:
        ShunterError: It asks for what a fleet does not train, or its data cannot be read.
    """
    assert own.train is not None, f"{own.name} trains nothing"
    check_training(own, own.train)
    return training_of(own.train, ingest_request(own.train)[0])


def with_times(jobs: Sequence[FleetJob], types: Sequence[str], foretell: Foreteller) -> list[FleetJob]:
    """The jobs with the times that they do not state, for these accelerator types.

    Raises:
        RequestError: Nothing tells how long one takes.
    """
    asked = [by_type(job.own, types) for job in jobs]
    return [replace(job, own=own) for job, own in zip(jobs, foretell(asked, types), strict=True)]


def by_type(own: OwnJob, types: Sequence[str]) -> OwnJob:
    """Where it asks for one number: so many cores, or a GPU for each process, which is what each can use."""
    if isinstance(own.accelerators, dict) or all(is_processor(name) for name in types):
        return own
    cores = {name: own.accelerators for name in types if is_processor(name)}
    return own.model_copy(update={"accelerators": cores}) if own.accelerators != own.processes else own
