"""The ways of searching, by name, and what each is built from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import Execution, Schedule
from engine.data.dataset import Dataset
from models.spec import nearest
from search.methods.protocol import Cost, SearchMethod, Space
from shunter.errors import RequestError
from shunter.requests.training import Limits

if TYPE_CHECKING:
    from optuna import Study


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """What a method may know of the search it serves.

    Attributes:
        space: what is searched.
        study: the record of all trials, whichever method or machine proposed them. A method reads it; the search alone
            writes trials to it.
        dataset: the data; a method leaves its validation and test parts alone.
        execution: on what a trial runs.
        schedule: for how long a trial runs at most, and the seed of its training.
        directory: folder of the method's own state, which lasts as long as the study's; the method creates it.
        cost: what NE is weighed against; None searches the lowest NE alone.
        seed: of the method.
        trials: budget in trials at the start of the search; None sets none.
        past: studies of other data sets, the nearest first; see `search.meta`.
        limits: of the user, for a method that can tell of a point that it breaks one before it is trained.
        run_id: MLflow run of the search, for a method that has something to tell there; None tells nobody.
        should_stop: for a method that takes long to find a point: a text says that the search is to end.
    """

    space: Space
    study: "Study"
    dataset: Dataset
    execution: Execution
    schedule: Schedule
    directory: Path
    cost: Cost | None = None
    seed: int = 0
    trials: int | None = None
    past: tuple[Any, ...] = ()
    limits: Limits | None = None
    run_id: str | None = None
    should_stop: Callable[[], str | None] | None = None


def _tpe(context: SearchContext) -> SearchMethod:
    from search.meta.portfolio import first_points, near
    from search.methods.samplers import Sampled, tpe_sampler

    return Sampled(context, tpe_sampler, first_points(context.space, near(context.past), context.cost))


def _random(context: SearchContext) -> SearchMethod:
    from search.methods.samplers import Sampled, random_sampler

    return Sampled(context, random_sampler)


def _dnas(context: SearchContext) -> SearchMethod:
    from search.methods.dnas import Dnas

    return Dnas(context)


def _rl(context: SearchContext) -> SearchMethod:
    from search.reinforce import controller_for

    return controller_for(context)


def _transfer(context: SearchContext) -> SearchMethod:
    from search.meta.transfer import Transfer

    return Transfer(context)


METHODS: dict[str, Callable[[SearchContext], SearchMethod]] = {
    "tpe": _tpe,
    "random": _random,
    "dnas": _dnas,
    "rl": _rl,
    "transfer": _transfer,
}


def build_method(name: str, context: SearchContext) -> SearchMethod:
    """The method of that name, ready to be asked.

    Raises:
        RequestError: there is none of that name, or it cannot search the space.
    """
    if name not in METHODS:
        raise RequestError(f"The search method {name!r} is unknown: {nearest(name, METHODS)}.")
    return METHODS[name](context)
