"""Step `tune`: settings tried in short trainings, the bad ones stopped early, the best ones first in the result."""

from collections.abc import Callable, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.data.dataset import Dataset
from engine.executors.role import Place
from hardware.types import HardwareProfile
from planner.predict.observe import ObserveStep, observer
from search.job import SearchJob
from search.result import TuneResult
from search.search import search
from search.study.address import read_secrets_with
from shunter.requests import TrainRequest
from tasks.retries import retried
from tasks.tune.report import publish_noise, publish_search, trial_progress

__all__ = ["observer_of", "publish_noise", "publish_search", "tune"]


def observer_of(dataset: Dataset, profiles: Sequence[HardwareProfile], request: TrainRequest) -> ObserveStep | None:
    """What makes observations of the steps of trials; None where several at a time slow each other down."""
    return observer(dataset, profiles) if request.search.parallel_trials == 1 else None


# Tried again, it goes on with the trials that are left.
@task(name="tune", cache_policy=NO_CACHE, **retried())
def tune(
    job: SearchJob, *, should_stop: Callable[[], str | None] | None = None, place: Place | None = None
) -> TuneResult:
    """Search settings within the budget, with the progress shown in the Prefect UI."""
    with trial_progress() as on_trial:
        return search(job, should_stop=should_stop, on_trial=on_trial, place=place)


def _read_secret(name: str) -> str | None:
    """The text of a block of Prefect, None where there is none of that name."""
    from prefect.blocks.system import Secret

    try:
        return str(Secret.load(name, _sync=True).get())  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    except ValueError:
        return None


read_secrets_with(_read_secret)
