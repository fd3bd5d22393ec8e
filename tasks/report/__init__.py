"""Step `report`: report page of a run that needs no server, and statistics of the features."""

from collections.abc import Callable

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.requests import JobRequest

__all__ = ["report"]


@task(name="report", cache_policy=NO_CACHE)
def report(run_id: str, dataset: Dataset, request: JobRequest, end: Callable[[], None] = lambda: None) -> None:
    """Log feature statistics and the report page to the run; errors are logged and do not fail the training."""
    try:
        from shunter.reporting.page.publish import log_report

        log_report(run_id, dataset, request, end)
    except Exception as error:  # the model is registered already: an error of the page must not fail the run
        get_run_logger().warning("The run has no report (%s: %s)", type(error).__name__, error, exc_info=True)
