"""Builds the search methods that `shunter.requests.search_methods` lists, those that draw by a sampler here."""

from shunter.requests import SEARCH_METHODS
from shunter.requests.search_methods import capabilities_of
from shunter.search.context import SearchContext
from shunter.search.meta.portfolio import first_points, near
from shunter.search.methods.samplers import Sampled, nsga2_sampler, random_sampler, tpe_sampler
from shunter.search.methods.taught import Taught, is_taught
from shunter.search.protocol import SearchMethod
from shunter.search.space.settings import SearchSpace
from shunter.search.study.families import FamilyRace


def race_of(name: str, context: SearchContext) -> FamilyRace | None:
    """The race of several families; none where the method begins otherwise, or the past names good points."""
    if not capabilities_of(name).get("races_families", False) or not isinstance(context.space, SearchSpace):
        return None
    if near(context.past) or is_taught(context):
        return None
    return FamilyRace.of(context.space, context.dataset.splits["train"].rows, context.schedule, context.trials)


def build_method(name: str, context: SearchContext) -> SearchMethod:
    """Build the search method of a name.

    Raises:
        UnknownNameError: No search method has this name.
        MissingExtensionError: The search method belongs to an extension that is not installed.
        RequestError: It cannot search the space.
    """
    return SEARCH_METHODS.load(name)(context)


def build_tpe(context: SearchContext) -> SearchMethod:
    """Build the tree-structured Parzen estimator, which begins with what the past or a race of families teaches."""
    if is_taught(context):
        return Taught(context, Sampled(context, tpe_sampler, first=()))
    first = first_points(context.space, near(context.past), context.cost)
    return Sampled(context, tpe_sampler, first, race_of("tpe", context))


def build_random(context: SearchContext) -> SearchMethod:
    """Build the search by random draws."""
    return Sampled(context, random_sampler)


def build_nsga2(context: SearchContext) -> SearchMethod:
    """Build the search by NSGA-II."""
    return Sampled(context, nsga2_sampler)
