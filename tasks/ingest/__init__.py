"""The step that turns a click log into the arrays a model is trained on."""

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from engine.dataset import Dataset
from models.registry import POSITIONAL
from shunter.settings import Settings
from tasks.faults import retried
from tasks.ingest.batch import Batch as RawBatch
from tasks.ingest.cache import IngestReport, file_hashes, forget, ingest_source
from tasks.ingest.days import DayLog, DaysSource, arrange_for, open_day
from tasks.ingest.encoder import CategoricalField, EncodedRows, Encoder
from tasks.ingest.guard import check_paths, check_words
from tasks.ingest.header import Kind, column_kinds, unreadable_share
from tasks.ingest.named import NamedDataset, named_datasets, with_histories
from tasks.ingest.names import value_names
from tasks.ingest.schema import Schema
from tasks.ingest.sources import open_source
from tasks.ingest.vocabulary import HashedIds, IdMap, VocabularyIds
from tasks.request import JobRequest

__all__ = [
    "CategoricalField",
    "DayLog",
    "DaysSource",
    "EncodedRows",
    "Encoder",
    "HashedIds",
    "IdMap",
    "IngestReport",
    "Kind",
    "NamedDataset",
    "RawBatch",
    "Schema",
    "VocabularyIds",
    "arrange_for",
    "check_paths",
    "check_words",
    "column_kinds",
    "file_hashes",
    "forget",
    "ingest",
    "ingest_request",
    "ingest_source",
    "named_datasets",
    "open_day",
    "open_source",
    "unreadable_share",
    "value_names",
]


# Our own cache is by content; Prefect's would be by the text of the request.
@task(name="ingest", cache_policy=NO_CACHE, **retried())
def ingest(request: JobRequest) -> Dataset:
    """Ingest the request's data, or find it in the cache."""
    dataset, report = ingest_request(request)
    logger = get_run_logger()
    if report.reused:
        logger.info("Data set %s found in the cache: %s rows", dataset.name, f"{report.rows:,}")
    else:
        logger.info(
            "Ingested %s rows of %s in %.1f s (%s rows/s), split by %s",
            f"{report.rows:,}",
            dataset.name,
            report.seconds,
            f"{report.rows_per_second:,.0f}",
            dataset.split_by,
        )
    if report.quarantined_rows:
        logger.warning(
            "%s rows could not be read, see %s",
            f"{report.quarantined_rows:,}",
            dataset.directory / "quarantine.csv",
        )
    return dataset


def ingest_request(request: JobRequest) -> tuple[Dataset, IngestReport]:
    """Ingest the request's data into the cache of the settings.

    Raises:
        DataError: the data cannot be found, read or used.
        RequestError: a named data set is misspelt.
    """
    settings = Settings()
    data = with_histories(request.data) if request.model in POSITIONAL else request.data
    source = open_source(data, request.format, request.schema_file, settings.downloads_directory)
    return ingest_source(source, settings.cache_directory, request.seed, request.max_bad_share)
