"""Architecture search by reinforcement learning, which starts from what past trials teach.

`controller` is the method of searching: its `learner` improves a `policy` by `ppo`. What past trials teach is in
`guide`: a `surrogate` that foretells what a point comes to, and an `inverse` model that chooses points for what is
wanted. `actions` and `experience` write points and outcomes as numbers.
"""

from collections.abc import Callable, Hashable

from tasks.tune.method import Parameters, Space
from tasks.tune.methods import SearchContext
from tasks.tune.reinforce.actions import Actions
from tasks.tune.reinforce.controller import Controller
from tasks.tune.reinforce.experience import History

__all__ = ["Actions", "Controller", "History", "controller_for"]


def controller_for(context: SearchContext) -> Controller:
    """The method of a search: cold where there are no past studies of points like these.

    Raises:
        RequestError: a factor of the space has no values.
    """
    defaults = context.space.defaults()
    actions = Actions(
        context.space.factors(), default=defaults[0] if defaults else None, identity=_identity(context.space)
    )
    return Controller(
        actions,
        cost=context.cost,
        seed=context.seed,
        defaults=defaults,
        past=[History.of(actions, {}, study.trials) for study in context.past],
        horizon=context.trials,
        directory=context.directory,
    )


def _identity(space: Space) -> Callable[[Parameters], Hashable]:
    """What tells models apart: two points of a space may build the same one."""

    def model_of(parameters: Parameters) -> Hashable:
        try:
            return space.build(parameters)
        except NotImplementedError:  # a published table, which has no models of ours
            return tuple(parameters.items())

    return model_of
