"""Step `tune`: settings tried in short trainings, the bad ones stopped early, the best ones first in the result."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.role import Place
from shunter.engine.stopping import ShouldStop
from shunter.hardware.devices.discovery import usable_cores
from shunter.hardware.reservation import Reservation
from shunter.hardware.types import HardwareProfile
from shunter.model_families import is_ranking
from shunter.planner.decide import Decision
from shunter.planner.predict.observe import ObserveStep, observer
from shunter.planner.together import trials_at_a_time
from shunter.requests import TrainRequest
from shunter.search.job import SearchJob
from shunter.search.result import TuneResult
from shunter.search.search import search
from shunter.search.study.address import read_secrets_with
from shunter.tasks.retries import retried
from shunter.tasks.story import tell
from shunter.tasks.tune.report import publish_noise, publish_search, trial_progress
from shunter.tracking.runs import open_run

__all__ = ["observer_of", "publish_noise", "publish_search", "tune", "with_trials_at_a_time"]


def observer_of(dataset: Dataset, profiles: Sequence[HardwareProfile], request: TrainRequest) -> ObserveStep | None:
    """What makes observations of the steps of trials; None where several at a time slow each other down."""
    return observer(dataset, profiles) if request.search.trials_at_a_time == 1 else None


def with_trials_at_a_time(request: TrainRequest, decision: Decision, held: Reservation, run_id: str) -> TrainRequest:
    """The request with as many trials at a time as its minutes are used best by, unless it says how many.

    Args:
        request: What was asked for.
        decision: The choice of the placement.
        held: What is held of this machine; only with all of its cores are there several trials at a time.
        run_id: Run in MLflow that is told why.
    """
    search, cores = request.search, usable_cores()
    is_open = search.parallel_trials is None and search.is_by_minutes_alone and not is_ranking(request.model)
    if not is_open or held.cores < cores:
        return request
    advice = trials_at_a_time(decision, cores, 60 * (search.search_minutes or 0.0))
    open_run(run_id).set_tags({"search.trials_at_a_time": advice.words})
    if advice.chosen.count > 1:
        tell(advice.words)
    return request.model_copy(update={"parallel_trials": advice.chosen.count})


# Tried again, it goes on with the trials that are left.
@task(name="tune", cache_policy=NO_CACHE, **retried())
def tune(job: SearchJob, *, should_stop: ShouldStop | None = None, place: Place | None = None) -> TuneResult:
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
