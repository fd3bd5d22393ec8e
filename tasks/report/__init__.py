"""Step `report`: one run as one page that needs no server, and the statistics of the features on it."""

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.requests import JobRequest

__all__ = ["report"]


@task(name="report", cache_policy=NO_CACHE)
def report(run_id: str, dataset: Dataset, request: JobRequest) -> None:
    """Keep statistics of the features and the report as artifacts of the run; a training does not fail by it."""
    try:
        from shunter.reporting.page.publish import log_report

        log_report(run_id, dataset, request)
    except Exception as error:  # the model is there and registered: nothing about a page may undo that
        get_run_logger().warning("The run has no report (%s: %s)", type(error).__name__, error, exc_info=True)
