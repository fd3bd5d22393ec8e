"""Step `ingest`: turn a click log into the arrays of a data set, and show the progress.

The progress is shown on the terminal and, if the ingestion takes long, in Prefect.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.ingestion.findings import findings_of_dataset
from shunter.ingestion.progress import OnProgress, Progress
from shunter.ingestion.request import ingest_request
from shunter.requests import JobRequest
from shunter.tasks.progress_line import FlowBar, progress_line
from shunter.tasks.retries import retried
from shunter.tasks.run_log import log_sentence

__all__ = ["ingest", "ingest_progress"]

KEY = "ingest"
TELL_SECONDS = 20.0
_MIB = 1 << 20


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


@contextmanager
def ingest_progress(now: Callable[[], float] = time.monotonic) -> Iterator[OnProgress]:
    """Show the progress of an ingestion: a bar on a terminal; in Prefect a log line and a bar, every 20 seconds."""
    shown, began, told = FlowBar(KEY), now(), now()

    def on_progress(progress: Progress) -> None:
        nonlocal told
        words = text_of(progress)
        line.move(progress.share, words)
        if now() - told >= TELL_SECONDS:
            told = now()
            left = (told - began) * (1 - progress.share) / max(progress.share, 1e-3)
            sentence = f"Ingestion: {progress.share:.0%} done, {words}; about {duration(left)} left."
            log_sentence(sentence)
            shown.move(progress.share, sentence)

    with progress_line("ingest") as line:
        yield on_progress
    shown.end("The log is ingested.")


def text_of(progress: Progress) -> str:
    """Return the current stage and the amount of the log that was read, as text."""
    read = f"{progress.bytes_read / _MIB:,.0f} of {progress.bytes / _MIB:,.0f} MiB"
    return f"{progress.stage} ({progress.rows:,} rows, {read} read)"


def duration(seconds: float) -> str:
    """Return a duration as text, in seconds or, from two minutes on, in minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
