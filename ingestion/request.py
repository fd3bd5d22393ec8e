"""Ingestion of the data of a request."""

from dataclasses import replace
from functools import partial

from shunter.engine.data.dataset import Dataset
from shunter.ingestion.cache import IngestReport, ingest_source
from shunter.ingestion.progress import OnProgress, ignore
from shunter.ingestion.sources.addresses import versions_of
from shunter.ingestion.sources.names import with_histories
from shunter.ingestion.sources.open import open_source, with_loss
from shunter.ingestion.workers import copy_by
from shunter.model_families import PROBLEMS, problem_of, reads_positions
from shunter.requests import JobRequest, SelectRequest, TrainRequest
from shunter.settings import Settings


def ingest_request(request: JobRequest, on_progress: OnProgress = ignore) -> tuple[Dataset, IngestReport]:
    """Ingest the request's data into the cache directory of the settings; `on_progress` receives the progress.

    Raises:
        DataError: The data cannot be found, read or used.
        RequestError: A named data set is misspelt.
    """
    settings = Settings()
    nodes = request.nodes if isinstance(request, SelectRequest | TrainRequest) else None
    data = with_histories(request.data) if reads_positions(request.model) else request.data
    asked = request.source
    source = open_source(
        data,
        asked.format,
        asked.schema_file,
        settings.downloads_directory,
        asked.held_out,
        where=asked.where,
        copy=partial(copy_by, nodes),
    )
    source = with_loss(source, request.architecture.loss)
    dataset, report = ingest_source(
        source,
        settings.cache_directory,
        request.seed,
        request.source.max_bad_share,
        positives_suffice=bool(PROBLEMS.capability(problem_of(request.model), "positives_suffice")),
        cluster=nodes,
        on_progress=on_progress,
    )
    return replace(dataset, versions=versions_of(source.paths)), report
