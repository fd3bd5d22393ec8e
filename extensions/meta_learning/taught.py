"""Default search that starts with points from past searches on other data, and continues with the TPE sampler."""

from collections.abc import Callable, Sequence

from shunter.extensions.meta_learning.points import Domain
from shunter.extensions.meta_learning.portfolio import FEWEST_POINTS, first_points, near
from shunter.extensions.meta_learning.transfer import Transfer
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Outcome, Parameters, SearchMethod
from shunter.search.study.storage import begun_trials

TAUGHT_TRIALS = 12  # set by hand; the benchmark covers the first 8


class Taught:
    """Search method that starts like `Transfer` and continues with another method.

    Args:
        context: Context of the search, with past studies.
        then: Method that continues, based on the study of the context.
    """

    def __init__(self, context: SearchContext, then: SearchMethod) -> None:
        self._study, self._first, self._then = context.study, Transfer(context), then

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return the next point: of `Transfer` for the first trials, then of the continuing method."""
        is_taught = len(begun_trials(self._study)) < TAUGHT_TRIALS
        return (self._first.ask(left) if is_taught else None) or self._then.ask(left)

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Report the outcome of a point to both methods."""
        self._first.tell(parameters, outcome)
        self._then.tell(parameters, outcome)


def is_taught(context: SearchContext) -> bool:
    """Return True if past studies have points in this space, but no study is similar enough to try its best points."""
    if not context.past or near(context.past):
        return False
    domain, points = Domain.of(context.space), {}
    for study in context.past:
        told = sum(domain.translate(parameters) is not None for parameters, _ in study.trials)
        points[study.name] = points.get(study.name, 0) + told
    return any(count >= FEWEST_POINTS for count in points.values())


def taught_start(context: SearchContext, go_on: Callable[[Sequence[Parameters]], SearchMethod]) -> SearchMethod | None:
    """Return a method that starts with points of past studies; None if they have no points in this space.

    Args:
        context: Context of the search, with past studies.
        go_on: Function that builds the continuing method, given the first points.
    """
    if is_taught(context):
        return Taught(context, go_on(()))
    nearest = near(context.past)
    return go_on(first_points(context.space, nearest, context.cost)) if nearest else None
