"""Step `tune`: settings tried in short trainings, the bad ones stopped early, the best ones first in the result."""

from collections.abc import Callable
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.data.dataset import Dataset
from engine.executors.role import Place
from hardware.types import Placement
from search.job import SearchJob
from search.result import TuneResult
from search.search import search
from shunter.requests import TrainRequest
from tasks.retries import retried
from tasks.tune.report import publish_search, trial_progress

__all__ = ["publish_search", "tune"]


# Tried again, it goes on with the trials that are left.
@task(name="tune", cache_policy=NO_CACHE, **retried())
def tune(
    dataset: Dataset,
    request: TrainRequest,
    placement: Placement,
    directory: Path,
    *,
    parent_run_id: str,
    should_stop: Callable[[], str | None] | None = None,
    place: Place | None = None,
    used_seconds: float = 0.0,
    used_joules: float = 0.0,
) -> TuneResult:
    """Search settings within the budget, with the progress shown in the Prefect UI."""
    with trial_progress() as on_trial:
        return search(
            SearchJob(
                dataset=dataset,
                request=request,
                placement=placement,
                directory=directory,
                parent_run_id=parent_run_id,
                used_seconds=used_seconds,
                used_joules=used_joules,
            ),
            should_stop=should_stop,
            on_trial=on_trial,
            place=place,
        )
