"""The search methods by name, and what each is built from."""

from collections.abc import Callable

from shunter.errors import RequestError
from shunter.models.spec import nearest
from shunter.search.context import SearchContext
from shunter.search.meta.portfolio import first_points, near
from shunter.search.meta.transfer import Transfer
from shunter.search.methods.dnas import Dnas
from shunter.search.methods.samplers import Sampled, nsga2_sampler, random_sampler, tpe_sampler
from shunter.search.methods.taught import Taught, is_taught
from shunter.search.protocol import SearchMethod
from shunter.search.reinforce.build import controller_for
from shunter.search.space.settings import SearchSpace
from shunter.search.study.families import FamilyRace


def _tpe(context: SearchContext) -> SearchMethod:
    if is_taught(context):
        return Taught(context, Sampled(context, tpe_sampler, first=()))
    first = first_points(context.space, near(context.past), context.cost)
    return Sampled(context, tpe_sampler, first, race_of("tpe", context))


def _random(context: SearchContext) -> SearchMethod:
    return Sampled(context, random_sampler)


def _nsga2(context: SearchContext) -> SearchMethod:
    return Sampled(context, nsga2_sampler)


METHODS: dict[str, Callable[[SearchContext], SearchMethod]] = {
    "tpe": _tpe,
    "random": _random,
    "nsga2": _nsga2,
    "dnas": Dnas,
    "rl": controller_for,
    "transfer": Transfer,
}


def race_of(name: str, context: SearchContext) -> FamilyRace | None:
    """The race of several families; none where another method proposes, or the past names good points."""
    if name != "tpe" or not isinstance(context.space, SearchSpace) or near(context.past) or is_taught(context):
        return None
    return FamilyRace.of(context.space, context.dataset.splits["train"].rows, context.schedule, context.trials)


def build_method(name: str, context: SearchContext) -> SearchMethod:
    """The method of that name, ready to be asked.

    Raises:
        RequestError: There is none of that name, or it cannot search the space.
    """
    if name not in METHODS:
        raise RequestError(f"The search method {name!r} is unknown: {nearest(name, METHODS)}.")
    return METHODS[name](context)
