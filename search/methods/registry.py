"""Builders of the search methods (`shunter.requests.search`) that use a sampler of Optuna."""

from functools import partial

from shunter.registry import Entry, Registry
from shunter.requests import SEARCH_METHODS
from shunter.search.context import SearchContext
from shunter.search.methods.samplers import Sampled, nsga2_sampler, random_sampler, tpe_sampler
from shunter.search.protocol import SearchMethod
from shunter.search.space.settings import SearchSpace
from shunter.search.study.families import FamilyComparison

# Entry points of an extension that uses earlier searches: `studies` reads the searches, `start` builds a search method.
PAST_SEARCHES = Registry(
    "use of past searches",
    {
        "studies": Entry(target="shunter.extensions.meta_learning.past:begin_from_past"),
        "start": Entry(target="shunter.extensions.meta_learning.transfer:taught_start"),
    },
    group="shunter.past_searches",
)


def build_method(name: str, context: SearchContext) -> SearchMethod:
    """Build the search method with the given name.

    Raises:
        UnknownNameError: No search method has this name.
        MissingExtensionError: The search method belongs to an extension that is not installed.
        RequestError: The search method cannot search the space.
    """
    return SEARCH_METHODS.load(name)(context)


def build_tpe(context: SearchContext) -> SearchMethod:
    """Build the tree-structured Parzen estimator; it starts from past searches or, without any, compares families."""
    taught = PAST_SEARCHES.load("start")(context, partial(Sampled, context, tpe_sampler)) if context.past else None
    if taught is not None:
        return taught
    comparison = None
    if isinstance(context.space, SearchSpace):
        rows = context.dataset.splits["train"].rows
        comparison = FamilyComparison.of(context.space, rows, context.schedule, context.trials)
    return Sampled(context, tpe_sampler, comparison=comparison)


def build_random(context: SearchContext) -> SearchMethod:
    """Build random search."""
    return Sampled(context, random_sampler)


def build_nsga2(context: SearchContext) -> SearchMethod:
    """Build NSGA-II."""
    return Sampled(context, nsga2_sampler)
