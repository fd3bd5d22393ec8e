"""Step `select`: choose the placement that keeps the limits and is best in the objective, with the reason."""

from collections.abc import Sequence
from dataclasses import replace

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.probes.measurement import measure
from shunter.hardware.types import HardwareProfile
from shunter.planner.choose import PROBE_SECONDS, MeasureTraining, choose
from shunter.planner.decide import Decision
from shunter.planner.history import History, read_history
from shunter.planner.history.zeros import backward_speedups
from shunter.requests import LOCAL_OFFERS, Explore, JobRequest
from shunter.tasks.run_log import log_sentence
from shunter.tasks.select.report import publish
from shunter.tasks.select.searched import searched_workloads
from shunter.tasks.select.track import log_decision

__all__ = ["estimate", "log_decision", "select"]


@task(name="select", cache_policy=NO_CACHE)
def select(
    dataset: Dataset,
    request: JobRequest,
    profiles: Sequence[HardwareProfile],
    *,
    offers: str = LOCAL_OFFERS,
    probe_seconds: float = PROBE_SECONDS,
    measure: MeasureTraining = measure,
    beside_seconds: float = 0.0,
) -> Decision:
    """Choose the placement of this training run, and show the table of all candidates in the Prefect UI."""
    decision = choose(
        dataset,
        request,
        profiles,
        offers=offers,
        probe_seconds=probe_seconds,
        history=_history_of(dataset, request),
        measure=measure,
        searched=searched_workloads(dataset, request),
        beside_seconds=beside_seconds,
    )
    publish(decision)
    log_sentence(decision.reason)
    return decision


def estimate(dataset: Dataset, request: JobRequest, profiles: Sequence[HardwareProfile]) -> Decision:
    """Predict all placements from past runs and profiles only, without measurements, because other flows may use them.

    Raises:
        NoFeasiblePlacementError: No placement keeps the limits.
    """
    return choose(
        dataset,
        request.model_copy(update={"explore": Explore.NEVER}),
        profiles,
        probe_seconds=0.0,
        history=_history_of(dataset, request),
        measure=_measure_nothing,
        searched=searched_workloads(dataset, request),
    )


def _history_of(dataset: Dataset, request: JobRequest) -> History:
    """Return past runs, and the speed-ups of this job's backward pass."""
    return replace(read_history(), backward_speedups=backward_speedups(dataset.name, request.model))


def _measure_nothing(*_: object) -> None:
    """Do nothing, in place of a measurement that cannot be made."""
