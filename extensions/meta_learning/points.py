"""Encoding of points as numbers for a surrogate, sampling of points, and translation of points between spaces."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shunter.search.protocol import Parameters, Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

ABSENT = 0.5  # value of a missing parameter, such as another family's option: the middle of its scale
STEP = 0.15  # standard deviation of a small change, relative to a scale


@dataclass(frozen=True)
class Domain:
    """Parameters of a space with their distributions, to sample, change and compare points.

    A number is encoded as its position in its range, from 0 to 1, on a log scale if it is searched on a log scale. A
    choice among numbers is encoded as its rank, and a choice among names as a one-hot vector.

    Attributes:
        space: Search space.
        distributions: Optuna's distribution of every parameter that any point has.
    """

    space: Space
    distributions: "Mapping[str, BaseDistribution]"

    @classmethod
    def of(cls, space: Space) -> "Domain":
        """Return the domain with all parameters of the space's first points."""
        distributions: dict[str, BaseDistribution] = {}
        for point in space.defaults():
            distributions |= distributions_at(space, point)
        return cls(space, distributions)

    def encode(self, points: list[Parameters]) -> np.ndarray:
        """Return the points as numbers from 0 to 1, float64 `[points, columns]`."""
        columns = [
            column
            for name, distribution in self.distributions.items()
            for column in _columns([point.get(name) for point in points], distribution)
        ]
        return np.array(columns, dtype=np.float64).reshape(len(columns), len(points)).T

    def draw(self, count: int, random: np.random.Generator) -> list[Parameters]:
        """Sample points uniformly from the whole space."""
        return [
            self._cut({name: _draw(distribution, random) for name, distribution in self.distributions.items()})
            for _ in range(count)
        ]

    def change(self, point: Parameters, random: np.random.Generator) -> Parameters:
        """Return a similar point: each parameter is changed with probability 1/3, and at least one parameter."""
        names = [name for name in point if not self.distributions[name].single()]
        if not names:
            return dict(point)
        chosen = {name for name in names if random.random() < 1 / 3} or {names[random.integers(len(names))]}
        changed = {name: _change(point[name], self.distributions[name], random) for name in sorted(chosen)}
        others = {
            name: _draw(distribution, random) for name, distribution in self.distributions.items() if name not in point
        }
        return self._cut({**others, **point, **changed})

    def translate(self, parameters: Mapping[str, Any]) -> Parameters | None:
        """Translate a point of another space to the nearest point of this space; None if the spaces differ too much.

        Numbers are clipped to the range or set to the nearest choice; unknown names and missing parameters get the
        default. Points of a family that this space lacks, or with less than half of the parameters, give None:
        otherwise their results would be attributed to the default.
        """
        family = self.distributions.get("family")
        defaults = self.space.defaults()
        if family is not None:
            defaults = [point for point in defaults if point["family"] == parameters.get("family")]
            if not defaults:
                return None
        moved = {
            name: value
            for name, distribution in self.distributions.items()
            if name in parameters and (value := _moved(parameters[name], distribution)) is not _UNKNOWN
        }
        point = self._cut({**defaults[0], **moved})
        return point if 2 * len(moved.keys() & point.keys()) >= len(point) else None

    def _cut(self, parameters: Parameters) -> Parameters:
        """Return the parameters that apply to this point, such as those of its family."""
        return {name: parameters[name] for name in distributions_at(self.space, parameters)}


def distributions_at(space: Space, parameters: Parameters) -> "dict[str, BaseDistribution]":
    """Return the distributions of a point's parameters."""
    from optuna.trial import FixedTrial

    trial = FixedTrial(parameters)
    space.suggest(trial)  # pyright: ignore[reportArgumentType] - made to replace a trial
    return dict(trial.distributions)


_UNKNOWN = object()


def _numbers(distribution: Any) -> tuple[float, ...] | None:
    """Return the choices in order if all are numbers, otherwise None."""
    choices = distribution.choices
    if all(isinstance(choice, int | float) and not isinstance(choice, bool) for choice in choices):
        return tuple(sorted(choices))
    return None


def _columns(values: list[Any], distribution: Any) -> list[list[float]]:
    """Return one column for a numeric parameter, or a one-hot column for each name."""
    if not hasattr(distribution, "choices"):
        return [[ABSENT if value is None else _place(value, distribution) for value in values]]
    numbers = _numbers(distribution)
    if numbers is not None:
        last = max(len(numbers) - 1, 1)
        return [[ABSENT if value is None else numbers.index(value) / last for value in values]]
    return [[float(value == choice) for value in values] for choice in distribution.choices]


def _place(value: float, distribution: Any) -> float:
    low, high = float(distribution.low), float(distribution.high)
    if high == low:
        return ABSENT
    if distribution.log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low)


def _at(place: float, distribution: Any) -> float | int:
    """Return the value of a distribution at a position, 0 to 1, on its linear or log scale."""
    low, high = float(distribution.low), float(distribution.high)
    place = min(max(place, 0.0), 1.0)
    value = low * (high / low) ** place if distribution.log else low + (high - low) * place
    return _rounded(value, distribution)


def _rounded(value: float, distribution: Any) -> float | int:
    """Clip a value to the distribution's range, and round it to the distribution's step."""
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is not None:
        value = low + step * round((value - low) / step)
    value = min(max(value, low), high)
    return int(value) if isinstance(low, int) else float(value)


def _draw(distribution: Any, random: np.random.Generator) -> Any:
    if hasattr(distribution, "choices"):
        return distribution.choices[random.integers(len(distribution.choices))]
    return _at(random.random(), distribution)


def _change(value: Any, distribution: Any, random: np.random.Generator) -> Any:
    if not hasattr(distribution, "choices"):
        place = _place(value, distribution)
        changed = _at(place + random.normal(0.0, STEP), distribution)
        return changed if changed != value or distribution.step is None else _draw(distribution, random)
    numbers = _numbers(distribution)
    if numbers is None:
        return _draw(distribution, random)
    place = numbers.index(value) + (1 if random.random() < 0.5 else -1)
    return numbers[min(max(place, 0), len(numbers) - 1)]


def _moved(value: Any, distribution: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not hasattr(distribution, "choices"):
        return _rounded(value, distribution) if is_number else _UNKNOWN
    if value in distribution.choices:
        return value
    numbers = _numbers(distribution)
    return min(numbers, key=lambda number: abs(number - value)) if numbers and is_number else _UNKNOWN
