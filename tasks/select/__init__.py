"""Step `select`: choose the placement that keeps the limits and is best in the objective, with the reason."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from prefect import task
from prefect.cache_policies import NO_CACHE

from shunter.engine.data.dataset import Dataset
from shunter.engine.overrides import read_overrides
from shunter.engine.probes.measurement import measure
from shunter.hardware.types import HardwareProfile, Workload
from shunter.model_families import is_ranking
from shunter.models.spec import ModelSpec
from shunter.planner.choose import PROBE_SECONDS, MeasureTraining, choose
from shunter.planner.decide import Decision
from shunter.planner.describe import describe
from shunter.planner.history import History, read_history
from shunter.planner.history.zeros import backward_speedups
from shunter.requests import LOCAL_OFFERS, Explore, JobRequest, SearchSpaceName, TrainRequest
from shunter.search.space.settings import SearchSpace
from shunter.tasks.run_log import log_sentence
from shunter.tasks.select.report import log_decision, publish

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
    """Choose the placement of a training run by `shunter.planner.choose.choose`, and show all candidates in Prefect."""
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
        measure=lambda *_: None,
        searched=searched_workloads(dataset, request),
    )


def _history_of(dataset: Dataset, request: JobRequest) -> History:
    """Return past runs, with the measured speed-ups of the backward pass on this data and model."""
    return replace(read_history(), backward_speedups=backward_speedups(dataset.name, request.model))


MOST = 5  # largest number of architectures that represent a search


def searched_workloads(dataset: Dataset, request: JobRequest) -> list[Workload]:
    """Return the workloads of a sample of architectures that the search may try.

    Their predicted times are used to estimate the time of the search. The list is empty where the default architecture
    represents all trials: for graph models, nightly runs, searches limited by time or energy, and searches of the
    architecture space.
    """
    trials = request.search.most_trials
    is_cut = isinstance(request, TrainRequest) and request.search.space == SearchSpaceName.ARCHITECTURE
    if trials is None or is_cut or is_ranking(request.model) or not request.searches:
        return []
    fixed = read_overrides(request.model, request.architecture.settings)
    space = SearchSpace.for_dataset(dataset, request.model, overrides=fixed)
    return [describe(dataset, spec) for spec in drawn_specs(space, trials, request.seed)]


def drawn_specs(space: SearchSpace, trials: int, seed: int) -> list[ModelSpec]:
    """Return the first settings of a search, then random ones, because later settings depend on results."""
    points, chance = space.defaults()[:trials], Random(seed)
    while len(points) < min(trials, MOST):
        family = chance.choice(space.families)
        drawn = {name: chance.choice(parameter.values) for name, parameter in space.parameters(family).items()}
        points.append({**drawn, **({"family": family} if len(space.families) > 1 else {})})
    return [space.build(point)[0] for point in points[:MOST]]
