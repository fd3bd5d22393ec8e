"""A search answered from a table instead of by trainings, so that many seeds cost little.

The methods are those of the product and are asked and told as its search does; only the outcome is looked up.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.search.context import SearchContext
from shunter.search.methods.registry import build_method
from shunter.search.protocol import BudgetLeft, Cost, Outcome, Parameters, SearchMethod, Space
from shunter.search.study.storage import record, tell

LookUp = Callable[[Parameters], Outcome]


@dataclass(frozen=True, kw_only=True)
class Played:
    """A point that a method asked for, and what it was told."""

    parameters: Parameters
    outcome: Outcome


def replay(
    method: str | Callable[[SearchContext], SearchMethod],
    space: Space,
    look_up: LookUp,
    *,
    dataset: Dataset,
    trials: int,
    seed: int,
    cost: Cost | None = None,
    past: Sequence[Any] = (),
) -> list[Played]:
    """One search of so many trials, in the order in which they were asked for; fewer when the method has no more.

    Args:
        method: Name in `shunter.requests.search`, or a function that builds it.
        space: Space that is searched.
        look_up: Function from a point to its outcome.
        dataset: Data set, as far as the method may know it.
        trials: Most points that are asked for.
        seed: Seed of the method.
        cost: Cost that NE is weighed against; None is NE alone.
        past: Earlier studies, the nearest first.
    """
    with TemporaryDirectory() as folder:
        context = context_of(space, dataset, Path(folder), trials=trials, seed=seed, cost=cost, past=past)
        build = method if callable(method) else lambda context: build_method(method, context)
        return _play(build(context), context, look_up, trials)


def context_of(
    space: Space,
    dataset: Dataset,
    folder: Path,
    *,
    trials: int,
    seed: int,
    cost: Cost | None = None,
    past: Sequence[Any] = (),
) -> SearchContext:
    """What a method knows of such a search; its own state is kept in a folder, the rest is as of `replay`."""
    from optuna import create_study

    logging.getLogger("optuna").setLevel(logging.WARNING)  # it tells of each study and trial
    return SearchContext(
        space=space,
        study=create_study(directions=["minimize"] if cost is None else ["minimize", "minimize"]),
        dataset=dataset,
        execution=Execution(threads=1),
        schedule=Schedule(),
        directory=folder,
        cost=cost,
        seed=seed,
        trials=trials,
        past=tuple(past),
    )


def _play(method: SearchMethod, context: SearchContext, look_up: LookUp, trials: int) -> list[Played]:
    played: list[Played] = []
    for done in range(trials):
        parameters = method.ask(BudgetLeft(trials=trials - done))
        if parameters is None:
            break
        outcome = look_up(parameters)
        trial = record(context.study, parameters)
        context.space.suggest(trial)
        tell(context.study, trial, outcome, context.cost)
        method.tell(parameters, outcome)
        played.append(Played(parameters=parameters, outcome=outcome))
    return played


def best_so_far(played: Sequence[Played], trials: int) -> np.ndarray:
    """Lowest NE of a feasible point after each trial, `[trials]`: infinite before the first, held after the last."""
    reached = [one.outcome.validation_ne if one.outcome.is_feasible else None for one in played]
    values = np.array([np.inf if value is None else value for value in reached] or [np.inf], dtype=np.float64)
    best = np.minimum.accumulate(values)[:trials]
    return np.concatenate([best, np.full(trials - len(best), best[-1])])
