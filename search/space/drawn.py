"""Which architectures a search will try, as far as that can be told before it begins."""

from random import Random

from shunter.models.spec import ModelSpec
from shunter.search.protocol import Parameters
from shunter.search.space.settings import SearchSpace

MOST = 5  # architectures that speak for all of a search


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
