"""Step `tune`: try settings in short training runs, stop bad ones early, and list the best ones first."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.role import ComputeTarget
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
from shunter.tasks.run_log import log_sentence
from shunter.tasks.tune.report import publish_noise, publish_search, trial_progress
from shunter.tracking.runs import open_run

__all__ = ["observer_of", "publish_noise", "publish_search", "tune", "with_trials_at_a_time"]


def observer_of(dataset: Dataset, profiles: Sequence[HardwareProfile], request: TrainRequest) -> ObserveStep | None:
    """Return a function that records the times of trial steps; None if parallel trials share a core."""
    return observer(dataset, profiles) if request.search.trials_at_a_time <= usable_cores() else None


def with_trials_at_a_time(request: TrainRequest, decision: Decision, held: Reservation, run_id: str) -> TrainRequest:
    """Return the request with the best number of parallel trials, unless the request sets the number.

    If a number of trials limits the search, the decision states the number of parallel trials; an exploration runs one
    trial at a time, because it compares times.

    Args:
        request: Request of the run.
        decision: Decision on the placement.
        held: Reservation on this machine; trials run in parallel only if it has all cores.
        run_id: MLflow run, to which the reason is logged.
    """
    search, cores = request.search, usable_cores()
    if held.cores < cores:
        return request
    if search.may_run_together and decision.trials_at_once > 1:
        count, words = decision.trials_at_once, f"{decision.trials_at_once} trials at a time, on {cores} cores."
    elif search.parallel_trials is None and search.is_by_minutes_alone and not is_ranking(request.model):
        advice = trials_at_a_time(decision, cores, 60 * (search.search_minutes or 0.0))
        count, words = advice.chosen.count, advice.reason
    else:
        return request
    open_run(run_id).set_tags({"search.trials_at_a_time": words})
    if count > 1:
        log_sentence(words)
    return request.model_copy(update={"parallel_trials": count})


# After a retry, the remaining trials run.
@task(name="tune", cache_policy=NO_CACHE, **retried())
def tune(job: SearchJob, *, should_stop: ShouldStop | None = None, place: ComputeTarget | None = None) -> TuneResult:
    """Search settings within the budget, with the progress shown in the Prefect UI."""
    with trial_progress() as on_trial:
        return search(job, should_stop=should_stop, on_trial=on_trial, on_epoch=on_trial, place=place)


def _read_secret(name: str) -> str | None:
    """Return the text of a secret block of Prefect; None if there is none of that name."""
    from prefect.blocks.system import Secret

    try:
        return str(Secret.load(name, _sync=True).get())  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    except ValueError:
        return None


read_secrets_with(_read_secret)
