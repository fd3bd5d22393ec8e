"""Parameter of a search space: a list of values, or a range."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from optuna import Trial

Choice = int | float | str | None
Choices = dict[str, tuple[Choice, ...]]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a search space.

    Attributes:
        values: All values; for a range, a few of its values.
        draw: Function that samples a value with an Optuna trial, under a name.
        is_range: Whether every value between the lowest and the highest can be sampled.
    """

    values: tuple[Any, ...]
    draw: "Callable[[Trial, str], Any]"
    is_range: bool = False

    @classmethod
    def choice(cls, values: Sequence[Choice]) -> Self:
        """Return a parameter with a list of values."""
        return cls(tuple(values), lambda trial, name: trial.suggest_categorical(name, list(values)))

    @classmethod
    def count(cls, most: int) -> Self:
        """Return an integer parameter from 1 to `most`."""
        return cls(tuple(range(1, most + 1)), lambda trial, name: trial.suggest_int(name, 1, most))

    @classmethod
    def share(cls, most: float) -> Self:
        """Return a parameter between 0 and `most`."""
        values = tuple(part * most for part in (0.0, 0.2, 0.4, 0.6, 1.0))
        return cls(values, lambda trial, name: trial.suggest_float(name, 0.0, most), is_range=True)

    @classmethod
    def rate(cls, bounds: tuple[float, float]) -> Self:
        """Return a parameter in a range, in log scale."""
        low, high = bounds
        values = tuple(min(high, low * (high / low) ** (step / 5)) for step in range(6))
        return cls(values, lambda trial, name: trial.suggest_float(name, *bounds, log=True), is_range=True)


def moved(value: Any, parameter: Parameter) -> Any:
    """Return the value if allowed, else the nearest allowed number or, for a text or flag, the first allowed value."""
    numbers = [one for one in parameter.values if isinstance(one, int | float) and not isinstance(one, bool)]
    if value in parameter.values or not numbers or isinstance(value, str | bool):
        return value if value in parameter.values else parameter.values[0]
    if parameter.is_range:
        return into(value, (min(numbers), max(numbers)))
    return min(numbers, key=lambda one: abs(one - value))


def nearest_choice(value: int, choices: tuple[int, ...]) -> int:
    """Return the choice that is nearest to a value."""
    return min(choices, key=lambda choice: abs(choice - value))


def into(value: float, bounds: tuple[float, float]) -> float:
    """Return a number clipped to a range."""
    return min(max(value, bounds[0]), bounds[1])
