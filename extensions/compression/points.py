"""Points of a small space: a value for each of some choices, and what each point costs."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from typing import Protocol

Choices = Mapping[str, Sequence[str]]
Point = dict[str, str]
Costs = tuple[float, ...]  # all of them minimised


class FormSearch(Protocol):
    """Looks for points of low costs; `few_choices` is the one that the product searches with."""

    def __call__(self, choices: Choices, costs: Callable[[Point], Costs], trials: int) -> Sequence[tuple[Point, Costs]]:
        """The points that were tried, each once, with their costs; at most `trials`."""
        ...


def every_point(choices: Choices, costs: Callable[[Point], Costs], trials: int) -> list[tuple[Point, Costs]]:
    """The points in the order of their values, the first ones where there are more than trials."""
    points = (dict(zip(choices, values, strict=True)) for values in product(*choices.values()))
    return [(point, costs(point)) for point in islice(points, trials)]
