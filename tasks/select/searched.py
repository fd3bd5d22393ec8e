"""What the search will train, beside the default architecture that a placement is chosen for."""

from random import Random

from shunter.engine.data.dataset import Dataset
from shunter.engine.fixed import read_fixed
from shunter.hardware.types import Workload
from shunter.model_families import is_ranking
from shunter.models.spec import ModelSpec
from shunter.planner.describe import describe
from shunter.requests import JobRequest, SearchSpaceName, TrainRequest
from shunter.search.protocol import Parameters
from shunter.search.space.settings import SearchSpace

MOST = 5  # architectures that speak for all of a search


def searched_workloads(dataset: Dataset, request: JobRequest) -> list[Workload]:
    """The demand of architectures that stand for those of the search; none where the default stands for all.

    That is so of graph models and nights, of a search that its own time or energy ends, whatever its points take, and
    of one among architectures that is cut by what they cost.

    Args:
        dataset: Data to train on.
        request: What was asked for.
    """
    trials = request.search.most_trials
    is_cut = isinstance(request, TrainRequest) and request.search.space == SearchSpaceName.ARCHITECTURE
    if trials is None or is_cut or is_ranking(request.model) or not request.searches:
        return []
    fixed = read_fixed(request.model, request.architecture.set)
    space = SearchSpace.for_dataset(dataset, request.model, fixed=fixed)
    return [describe(dataset, spec) for spec in drawn_specs(space, trials, request.seed)]


def drawn_specs(space: SearchSpace, trials: int, seed: int) -> list[ModelSpec]:
    """The points that a search begins with, then points at random; what is learned on the way is not known yet.

    Args:
        space: What is searched.
        trials: Points that the search may try.
        seed: Seed of the random points.
    """
    points, chance = space.defaults()[:trials], Random(seed)
    while len(points) < min(trials, MOST):
        points.append(_drawn(space, chance))
    return [space.build(point)[0] for point in points[:MOST]]


def _drawn(space: SearchSpace, chance: Random) -> Parameters:
    """A point of the space at random; of a range, one of a few values along it."""
    family = chance.choice(space.families)
    drawn = {name: chance.choice(parameter.values) for name, parameter in space.parameters(family).items()}
    return {**drawn, **({"family": family} if len(space.families) > 1 else {})}
