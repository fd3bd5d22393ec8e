"""Search of a small discrete space for points with low costs; a point has one value for each choice."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from typing import Protocol

from shunter.search.methods.samplers import tpe_sampler

Choices = Mapping[str, Sequence[str]]
Point = dict[str, str]
Costs = tuple[float, ...]  # all are minimised


class FormSearch(Protocol):
    """Function that searches a discrete space for points with low costs; the default is `search_choices`."""

    def __call__(self, choices: Choices, costs: Callable[[Point], Costs], trials: int) -> Sequence[tuple[Point, Costs]]:
        """Return the distinct points that were tried, with their costs; at most `trials`."""
        ...


def every_point(choices: Choices, costs: Callable[[Point], Costs], trials: int) -> list[tuple[Point, Costs]]:
    """Return the first `trials` points of the space with their costs, in the order of the listed values."""
    points = (dict(zip(choices, values, strict=True)) for values in product(*choices.values()))
    return [(point, costs(point)) for point in islice(points, trials)]


def search_choices(
    choices: Choices, costs: Callable[[Point], Costs], trials: int, *, seed: int = 0
) -> Sequence[tuple[Point, Costs]]:
    """Try points of a space; see `shunter.extensions.compression.points.FormSearch`.

    If the space has at most `trials` points, all are tried. Otherwise the first points have one value for all choices,
    such as `int8` for every layer; the others are sampled by multi-objective TPE (Ozaki et al., GECCO 2020).

    Args:
        choices: Values of each choice.
        costs: Function that returns the costs of a point, all of which are minimised.
        trials: Largest number of points.
        seed: Seed of the sampler.
    """
    if math.prod(map(len, choices.values())) <= trials:
        return every_point(choices, costs, trials)
    import optuna

    alike = [dict.fromkeys(choices, value) for value in dict.fromkeys(one for of in choices.values() for one in of)]
    first = [point for point in alike if all(value in choices[name] for name, value in point.items())]
    found: dict[tuple[str, ...], tuple[Point, Costs]] = {}

    def costs_of(point: Point) -> Costs:
        key = tuple(point.values())
        if key not in found:
            found[key] = point, costs(point)
        return found[key][1]

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = None
        for number in range(3 * trials):  # a sampler may repeat points
            if len(found) >= trials:
                break
            point = first[number] if number < len(first) else None
            if study is None:
                point = point or {name: values[0] for name, values in choices.items()}
                width = len(costs_of(point))
                study = optuna.create_study(
                    directions=[optuna.study.StudyDirection.MINIMIZE] * width, sampler=tpe_sampler(seed, trials)
                )
            if point is not None:
                study.enqueue_trial(point)
            trial = study.ask()
            drawn = {name: trial.suggest_categorical(name, tuple(values)) for name, values in choices.items()}
            study.tell(trial, costs_of(drawn))
    finally:
        optuna.logging.set_verbosity(verbosity)
    return list(found.values())
