"""What one thing that is searched may be: some values, or all of a range."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from optuna import Trial

Choice = int | float | str | None
Choices = dict[str, tuple[Choice, ...]]


@dataclass(frozen=True)
class Parameter:
    """What one thing that is searched may be.

    Attributes:
        values: All values; of a range a few along it.
        draw: Draws a value by an Optuna trial, under a name.
        is_range: Whether all between the lowest and the highest value can be drawn.
    """

    values: tuple[Any, ...]
    draw: "Callable[[Trial, str], Any]"
    is_range: bool = False

    @classmethod
    def choice(cls, values: Sequence[Choice]) -> Self:
        """One of some values."""
        return cls(tuple(values), lambda trial, name: trial.suggest_categorical(name, list(values)))

    @classmethod
    def count(cls, most: int) -> Self:
        """A number from 1 on."""
        return cls(tuple(range(1, most + 1)), lambda trial, name: trial.suggest_int(name, 1, most))

    @classmethod
    def share(cls, most: float) -> Self:
        """A share from 0 on."""
        values = tuple(part * most for part in (0.0, 0.2, 0.4, 0.6, 1.0))
        return cls(values, lambda trial, name: trial.suggest_float(name, 0.0, most), is_range=True)

    @classmethod
    def rate(cls, bounds: tuple[float, float]) -> Self:
        """A number in a range, in log scale."""
        return cls(_along(*bounds), lambda trial, name: trial.suggest_float(name, *bounds, log=True), is_range=True)


def moved(value: Any, parameter: Parameter) -> Any:
    """A value, or of numbers the nearest one that a parameter may be."""
    numbers = [one for one in parameter.values if isinstance(one, int | float) and not isinstance(one, bool)]
    if value in parameter.values or not numbers or isinstance(value, str | bool):
        return value if value in parameter.values else parameter.values[0]
    if parameter.is_range:
        return into(value, (min(numbers), max(numbers)))
    return min(numbers, key=lambda one: abs(one - value))


def nearest_choice(value: int, choices: tuple[int, ...]) -> int:
    """The one of the choices that lies nearest to a value."""
    return min(choices, key=lambda choice: abs(choice - value))


def into(value: float, bounds: tuple[float, float]) -> float:
    """A number, or the nearer end of a range that it lies outside of."""
    return min(max(value, bounds[0]), bounds[1])


def _along(low: float, high: float, points: int = 6) -> tuple[float, ...]:
    """Points from one end of a range to the other, evenly in log scale."""
    return tuple(min(high, low * (high / low) ** (step / (points - 1))) for step in range(points))
