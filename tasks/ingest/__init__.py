"""Step `ingest`: turn a click log into the arrays of a data set."""

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.ingestion.findings import findings_of_dataset
from shunter.ingestion.request import ingest_request
from shunter.requests import JobRequest
from shunter.tasks.ingest_progress import ingest_progress
from shunter.tasks.retries import retried

__all__ = ["ingest"]


# The project's cache is by content; Prefect's would be by the text of the request.
@task(name="ingest", cache_policy=NO_CACHE, **retried())
def ingest(request: JobRequest) -> Dataset:
    """Ingest the data of a request, or load it from the cache."""
    with ingest_progress() as on_progress:
        dataset, report = ingest_request(request, on_progress)
    logger = get_run_logger()
    if report.reused:
        logger.info("Data set %s found in the cache: %s rows", dataset.name, f"{report.rows:,}")
    else:
        logger.info(
            "Ingested %s rows of %s in %.1f s (%s rows/s), split by %s, read by %d %s",
            f"{report.rows:,}",
            dataset.name,
            report.seconds,
            f"{report.rows_per_second:,.0f}",
            dataset.split_by,
            report.processes,
            "process" if report.processes == 1 else "processes",
        )
    if report.quarantined_rows:
        logger.warning(
            "%s rows could not be read, see %s",
            f"{report.quarantined_rows:,}",
            dataset.directory / "quarantine.csv",
        )
    for finding in findings_of_dataset(dataset):
        logger.warning(finding.words)
    return dataset
