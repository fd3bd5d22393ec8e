"""The search by default where data of another kind was searched before: what the past teaches, then the estimator."""

from collections.abc import Callable, Sequence

from shunter.extensions.meta_learning.points import Domain
from shunter.extensions.meta_learning.portfolio import FEWEST_POINTS, first_points, near
from shunter.extensions.meta_learning.transfer import Transfer
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Outcome, Parameters, SearchMethod
from shunter.search.study.storage import begun_trials

TAUGHT_TRIALS = 12  # set by hand; the benchmark looks at the first 8


class Taught:
    """Begins as `Transfer` does, and goes on as another method.

    Args:
        context: Context of the search, with a past.
        then: Method that goes on; it learns from the study of the context.
    """

    def __init__(self, context: SearchContext, then: SearchMethod) -> None:
        self._study, self._first, self._then = context.study, Transfer(context), then

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """The next point of the one or the other, by how many have begun."""
        is_taught = len(begun_trials(self._study)) < TAUGHT_TRIALS
        return (self._first.ask(left) if is_taught else None) or self._then.ask(left)

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Both learn what came of a point."""
        self._first.tell(parameters, outcome)
        self._then.tell(parameters, outcome)


def is_taught(context: SearchContext) -> bool:
    """Whether the past tells of this space, and holds no data so like that its best points are taken over."""
    if not context.past or near(context.past):
        return False
    domain, points = Domain.of(context.space), {}
    for study in context.past:
        told = sum(domain.translate(parameters) is not None for parameters, _ in study.trials)
        points[study.name] = points.get(study.name, 0) + told
    return any(count >= FEWEST_POINTS for count in points.values())


def taught_start(context: SearchContext, go_on: Callable[[Sequence[Parameters]], SearchMethod]) -> SearchMethod | None:
    """Return a method that begins with what the past teaches; None if it teaches nothing of this space.

    Args:
        context: Context of the search, with a past.
        go_on: Builds the method that proposes the other points, from the points to try first.
    """
    if is_taught(context):
        return Taught(context, go_on(()))
    nearest = near(context.past)
    return go_on(first_points(context.space, nearest, context.cost)) if nearest else None
