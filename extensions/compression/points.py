"""Points of a small search space: a value for each choice, with the costs of each point."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from typing import Protocol

Choices = Mapping[str, Sequence[str]]
Point = dict[str, str]
Costs = tuple[float, ...]  # all are minimised


class FormSearch(Protocol):
    """Search for points of low costs; the default is `few_choices`."""

    def __call__(self, choices: Choices, costs: Callable[[Point], Costs], trials: int) -> Sequence[tuple[Point, Costs]]:
        """Return the distinct points that were tried, with their costs; at most `trials`."""
        ...


def every_point(choices: Choices, costs: Callable[[Point], Costs], trials: int) -> list[tuple[Point, Costs]]:
    """Return the points in the order of their values, at most `trials`."""
    points = (dict(zip(choices, values, strict=True)) for values in product(*choices.values()))
    return [(point, costs(point)) for point in islice(points, trials)]
