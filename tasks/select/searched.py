"""Architectures that a search will train, in addition to the default one that a placement is chosen for."""

from random import Random

from shunter.engine.data.dataset import Dataset
from shunter.engine.overrides import read_overrides
from shunter.hardware.types import Workload
from shunter.model_families import is_ranking
from shunter.models.spec import ModelSpec
from shunter.planner.describe import describe
from shunter.requests import JobRequest, SearchSpaceName, TrainRequest
from shunter.search.protocol import Parameters
from shunter.search.space.settings import SearchSpace

MOST = 5  # largest number of architectures that represent a search


def searched_workloads(dataset: Dataset, request: JobRequest) -> list[Workload]:
    """Return the workloads of architectures that represent the search; empty if the default represents it.

    The default represents graph models, nightly runs, searches that are limited by time or energy, and searches over
    architectures that are cut by cost.

    Args:
        dataset: Data to train on.
        request: Request of the run.
    """
    trials = request.search.most_trials
    is_cut = isinstance(request, TrainRequest) and request.search.space == SearchSpaceName.ARCHITECTURE
    if trials is None or is_cut or is_ranking(request.model) or not request.searches:
        return []
    fixed = read_overrides(request.model, request.architecture.set)
    space = SearchSpace.for_dataset(dataset, request.model, overrides=fixed)
    return [describe(dataset, spec) for spec in drawn_specs(space, trials, request.seed)]


def drawn_specs(space: SearchSpace, trials: int, seed: int) -> list[ModelSpec]:
    """Return the first settings of a search, then random ones, because later settings depend on results.

    Args:
        space: Search space.
        trials: Number of settings that the search may try.
        seed: Seed of the random settings.
    """
    points, chance = space.defaults()[:trials], Random(seed)
    while len(points) < min(trials, MOST):
        points.append(_drawn(space, chance))
    return [space.build(point)[0] for point in points[:MOST]]


def _drawn(space: SearchSpace, chance: Random) -> Parameters:
    """Return a random point of the space; a range is sampled at a few of its values."""
    family = chance.choice(space.families)
    drawn = {name: chance.choice(parameter.values) for name, parameter in space.parameters(family).items()}
    return {**drawn, **({"family": family} if len(space.families) > 1 else {})}
