"""The points of a discrete space as a policy sees them: for each factor the number of one of its values."""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from shunter.errors import InfeasibleError, RequestError
from shunter.search.protocol import Factors, Parameters

Action = tuple[int, ...]
NumbersOf = Callable[[Parameters], float]


class Actions:
    """Writes points as actions and back, and knows which of them are allowed.

    Args:
        factors: Every parameter with its values.
        default: A point that lends its values to points of other spaces that lack some.
        identity: Two points of which it gives the same are the same model; by default the values themselves.
        bytes_of: Counted bytes of a point, where they can be counted before it is trained.
        most_bytes: Most bytes of a point.

    Raises:
        RequestError: A factor has no values.
        InfeasibleError: Even the smallest point takes more than the most bytes.
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
        """Points of the space, allowed or not."""
        return math.prod(self.sizes)

    def decode(self, action: Sequence[int]) -> Parameters:
        """The point of an action."""
        return {name: values[index] for name, values, index in zip(self.names, self.values, action, strict=True)}

    def encode(self, parameters: Parameters) -> Action | None:
        """The action nearest to a point; None where it has a value that the space does not know.

        A number becomes the nearest of the factor's, by its logarithm where all are positive. What the point lacks, as
        the options of another family or a field that other data do not have, becomes the default's.
        """
        action = []
        for name, values in zip(self.names, self.values, strict=True):
            value = parameters.get(name, self._default.get(name, values[0]))
            index = _nearest(value, values)
            if index is None:
                return None
            action.append(index)
        return tuple(action)

    def identity(self, action: Action) -> Hashable:
        """What tells the model of an action from others: two actions may build the same one."""
        return self._identity(self.decode(action))

    def fits(self, action: Action) -> bool:
        """Whether the point keeps the limit of memory, as far as its bytes can be counted beforehand."""
        if self._bytes_of is None or self._most_bytes is None:
            return True
        if action not in self._fits:  # counting builds the model, without its weights
            self._fits[action] = self._bytes_of(self.decode(action)) <= self._most_bytes
        return self._fits[action]

    def one_hot(self, actions: np.ndarray) -> np.ndarray:
        """Of actions (samples, factors) a row with a one for each value that was chosen (samples, all values)."""
        starts = np.cumsum((0, *self.sizes[:-1]))
        encoded = np.zeros((len(actions), sum(self.sizes)), dtype=np.float32)
        np.put_along_axis(encoded, actions + starts, 1.0, axis=1)
        return encoded

    def uniform(self, samples: int, generator: np.random.Generator) -> np.ndarray:
        """Actions drawn evenly from the values that the mask allows (samples, factors)."""
        drawn = [generator.choice(np.flatnonzero(self.mask[factor]), samples) for factor in range(len(self.sizes))]
        return np.stack(drawn, axis=1) if drawn else np.zeros((samples, 0), dtype=np.int64)

    def neighbours(self, action: Action) -> list[Action]:
        """All allowed actions that differ in one factor."""
        found = (
            (*action[:factor], int(index), *action[factor + 1 :])
            for factor in range(len(self.sizes))
            for index in np.flatnonzero(self.mask[factor])
            if index != action[factor]
        )
        return [neighbour for neighbour in found if self.fits(neighbour)]

    def _mask(self) -> np.ndarray:
        """Which values may be chosen (factors, most values): those that fit beside the smallest others."""
        mask = np.zeros((len(self.sizes), max(self.sizes, default=0)), dtype=bool)
        for factor, size in enumerate(self.sizes):
            mask[factor, :size] = True
        if self._bytes_of is None or self._most_bytes is None:
            return mask
        smallest = self._smallest(self._bytes_of)
        if not self.fits(smallest):
            raise InfeasibleError(
                f"The smallest point of the search space takes {self._bytes_of(self.decode(smallest)):,.0f} bytes, and "
                f"{self._most_bytes:,.0f} are allowed: raise --max-memory-gib."
            )
        for factor, size in enumerate(self.sizes):
            for index in range(size):
                mask[factor, index] = self.fits((*smallest[:factor], index, *smallest[factor + 1 :]))
        return mask

    def _smallest(self, bytes_of: NumbersOf) -> Action:
        """The action of the fewest bytes, a factor at a time, twice: what a width costs hangs on its neighbours."""
        action = [0] * len(self.sizes)
        for factor in (*range(len(self.sizes)),) * 2:
            costs = [
                bytes_of(self.decode([*action[:factor], index, *action[factor + 1 :]]))
                for index in range(self.sizes[factor])
            ]
            action[factor] = int(np.argmin(costs))
        return tuple(action)


def _nearest(value: Any, values: Sequence[Any]) -> int | None:
    if value in values:
        return values.index(value)
    numbers = [value, *values]
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        return None
    if all(number > 0 for number in numbers):
        numbers = [math.log(number) for number in numbers]
    return int(np.argmin([abs(number - numbers[0]) for number in numbers[1:]]))
