"""Encoding of points and outcomes as numbers.

An action holds for each factor of a discrete space the index of one of its values. The trials on a data set are arrays
of actions and figures, in units that data sets share.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shunter.errors import InfeasibleError, RequestError
from shunter.search.protocol import COSTS, Cost, Factors, Outcome, Parameters
from shunter.search.reward import COST_WEIGHT

FIGURES = len(COSTS) + 1  # NE, and the log of each cost
MOST_DEVIATION = 3.0  # clip in standard deviations: a diverged training must not hide differences between the others
Action = tuple[int, ...]
NumbersOf = Callable[[Parameters], float]


class Actions:
    """Converter of points to actions and back, with a check of which of them are allowed.

    Args:
        factors: Every parameter with its values.
        default: Point whose values replace missing ones in points of other spaces.
        identity: Function that returns equal values for points of the same model; by default the factor values.
        bytes_of: Function that returns the counted bytes of a point, if they can be counted before training.
        most_bytes: Largest allowed number of bytes of a point.

    Raises:
        RequestError: A factor has no values.
        InfeasibleError: Even the smallest point exceeds the allowed bytes.
    """

    def __init__(
        self,
        factors: Factors,
        *,
        default: Parameters | None = None,
        identity: Callable[[Parameters], Hashable] | None = None,
        bytes_of: NumbersOf | None = None,
        most_bytes: float | None = None,
    ) -> None:
        for name, values in factors.items():
            if not values:
                raise RequestError(f"The search space has no value for {name!r}: give at least one.")
        self.names = tuple(factors)
        self.values: tuple[tuple[Any, ...], ...] = tuple(tuple(factors[name]) for name in self.names)
        self.sizes = tuple(map(len, self.values))
        self._default = default or {name: values[0] for name, values in factors.items()}
        self._identity = identity or (lambda parameters: tuple(parameters.items()))
        self._bytes_of, self._most_bytes = bytes_of, most_bytes
        self._fits: dict[Action, bool] = {}
        self.mask = self._mask()

    @property
    def count(self) -> int:
        """Number of points of the space, allowed or not."""
        return math.prod(self.sizes)

    def decode(self, action: Sequence[int]) -> Parameters:
        """Return the point of an action."""
        return {name: values[index] for name, values, index in zip(self.names, self.values, action, strict=True)}

    def encode(self, parameters: Parameters) -> Action | None:
        """Return the action nearest to a point; None if it has a value that the space lacks.

        A number becomes the nearest value of the factor, on a logarithmic scale if all values are positive. Missing
        values, such as options of another family or fields of other data, become those of the default.
        """
        action = []
        for name, values in zip(self.names, self.values, strict=True):
            index = _nearest(parameters.get(name, self._default.get(name, values[0])), values)
            if index is None:
                return None
            action.append(index)
        return tuple(action)

    def identity(self, action: Action) -> Hashable:
        """Return the identity of an action's model; different actions may build the same model."""
        return self._identity(self.decode(action))

    def fits(self, action: Action) -> bool:
        """Return True if the point fits into the memory limit, as far as its bytes can be counted."""
        if self._bytes_of is None or self._most_bytes is None:
            return True
        if action not in self._fits:  # counting builds the model, without its weights
            self._fits[action] = self._bytes_of(self.decode(action)) <= self._most_bytes
        return self._fits[action]

    def one_hot(self, actions: np.ndarray) -> np.ndarray:
        """Encode actions `[samples, factors]` as one-hot rows `[samples, values of all factors]`."""
        starts = np.cumsum((0, *self.sizes[:-1]))
        encoded = np.zeros((len(actions), sum(self.sizes)), dtype=np.float32)
        np.put_along_axis(encoded, actions + starts, 1.0, axis=1)
        return encoded

    def uniform(self, samples: int, generator: np.random.Generator) -> np.ndarray:
        """Sample actions `[samples, factors]` uniformly from the values that the mask allows."""
        drawn = [generator.choice(np.flatnonzero(self.mask[factor]), samples) for factor in range(len(self.sizes))]
        return np.stack(drawn, axis=1) if drawn else np.zeros((samples, 0), dtype=np.int64)

    def neighbours(self, action: Action) -> list[Action]:
        """Return all allowed actions that differ in one factor."""
        found = (
            (*action[:factor], int(index), *action[factor + 1 :])
            for factor in range(len(self.sizes))
            for index in np.flatnonzero(self.mask[factor])
            if index != action[factor]
        )
        return [neighbour for neighbour in found if self.fits(neighbour)]

    def _mask(self) -> np.ndarray:
        """Return the mask of allowed values, bool `[factors, values]`.

        A value is allowed if the point fits into the memory limit when all other factors are smallest.
        """
        mask = np.zeros((len(self.sizes), max(self.sizes, default=0)), dtype=bool)
        for factor, size in enumerate(self.sizes):
            mask[factor, :size] = True
        if self._bytes_of is None or self._most_bytes is None:
            return mask
        # The action with the fewest bytes: minimise each factor in turn, twice, because widths interact.
        action = [0] * len(self.sizes)
        for factor in (*range(len(self.sizes)),) * 2:
            neighbours = ([*action[:factor], index, *action[factor + 1 :]] for index in range(self.sizes[factor]))
            action[factor] = int(np.argmin([self._bytes_of(self.decode(one)) for one in neighbours]))
        smallest = tuple(action)
        if not self.fits(smallest):
            raise InfeasibleError(
                "The smallest architecture of the search space takes "
                f"{self._bytes_of(self.decode(smallest)):,.0f} bytes, more than the limit of "
                f"{self._most_bytes:,.0f}: raise --max-memory-gib."
            )
        for factor, size in enumerate(self.sizes):
            for index in range(size):
                mask[factor, index] = self.fits((*smallest[:factor], index, *smallest[factor + 1 :]))
        return mask


def _nearest(value: Any, values: Sequence[Any]) -> int | None:
    if value in values:
        return values.index(value)
    numbers = [value, *values]
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        return None
    if all(number > 0 for number in numbers):
        numbers = [math.log(number) for number in numbers]
    return int(np.argmin([abs(number - numbers[0]) for number in numbers[1:]]))


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Centre and spread of each figure on one data set, each `[figures]`."""

    centre: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, kw_only=True)
class History:
    """Trials on one data set.

    Attributes:
        features: Meta-features of the data and the limits, by name.
        actions: Actions of the trials, `[points, factors]`.
        figures: NE and the logs of the `COSTS`, `[points, figures]`; NaN for missing measurements.
    """

    features: Mapping[str, float]
    actions: np.ndarray
    figures: np.ndarray

    @classmethod
    def of(
        cls, actions: Actions, features: Mapping[str, float], trials: Iterable[tuple[Parameters, Outcome]]
    ) -> "History":
        """Build a history from points and outcomes, without failed ones and points outside of the space."""
        kept: list[tuple[Action, list[float]]] = []
        for parameters, outcome in trials:
            action, loss = actions.encode(parameters), outcome.loss
            if action and loss is not None and math.isfinite(loss):
                costs = (outcome.costs.get(cost) for cost in COSTS)
                kept.append((action, [loss or math.nan, *(math.log(cost) if cost else math.nan for cost in costs)]))
        return cls(
            features=dict(features),
            actions=np.array([action for action, _ in kept], dtype=np.int64).reshape(len(kept), len(actions.sizes)),
            figures=np.array([figures for _, figures in kept]).reshape(len(kept), FIGURES),
        )

    @property
    def levels(self) -> Levels:
        """Return the median of each figure, and its interquartile range scaled to a standard deviation."""
        return levels_of(self.figures)

    @property
    def standardised(self) -> np.ndarray:
        """Return the figures as distances from their centre in units of the spread, `[points, figures]`."""
        levels = self.levels
        return np.clip((self.figures - levels.centre) / levels.spread, -MOST_DEVIATION, MOST_DEVIATION)


def levels_of(figures: np.ndarray) -> Levels:
    """Return centre and spread of each column without its NaN; 0 and 1 without data."""
    centre, spread = np.zeros(figures.shape[1]), np.ones(figures.shape[1])
    for column in range(figures.shape[1]):
        known = figures[:, column][~np.isnan(figures[:, column])]
        if known.size == 0:
            continue
        centre[column] = np.median(known)
        low, high = np.percentile(known, (25, 75))
        spread[column] = (high - low) / 1.349 or np.std(known) or 1.0
    return Levels(centre=centre, spread=spread)


def predicted_reward(
    standardised: np.ndarray, levels: Levels, cost: Cost | None, weight: float = COST_WEIGHT
) -> np.ndarray:
    """Return the rewards `[points]` of standardised figures `[points, figures]`.

    A reward is the gain over a median point, in units of the spread of NE.
    """
    if cost is None:
        return -standardised[:, 0]
    column = 1 + COSTS.index(cost)
    dear = np.nan_to_num(standardised[:, column]) * levels.spread[column]
    return -(standardised[:, 0] + weight * dear / levels.spread[0])


def pooled_levels(histories: Sequence[History]) -> Levels:
    """Return the assumed levels of a data set without trials: centre 0, and the mean spread of the other data sets."""
    spreads = [history.levels.spread for history in histories] or [np.ones(FIGURES)]
    return Levels(centre=np.zeros(FIGURES), spread=np.mean(spreads, axis=0))


class States:
    """Converter of meta-features to vectors of differences from the mean of all known data sets.

    Meta-features are not divided by their spread, which is unreliable for a few data sets; in their units a difference
    of one is relevant.

    Args:
        known: Features of each data set; a missing feature counts as the mean.
    """

    def __init__(self, known: Sequence[Mapping[str, float]]) -> None:
        self.names = sorted({name for features in known for name in features})
        given = [[features[name] for features in known if name in features] for name in self.names]
        self._mean = np.array([np.mean(values) for values in given])

    def vector(self, features: Mapping[str, float]) -> np.ndarray:
        """Return the vector of one data set, `[state size]`."""
        row = np.array([features.get(name, mean) for name, mean in zip(self.names, self._mean, strict=True)])
        return np.clip(row - self._mean, -MOST_DEVIATION, MOST_DEVIATION)
