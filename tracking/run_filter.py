"""Filtering of listed runs, such as `auc > .8 and energy < 2 kJ`, and sorting by one quantity."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shunter.errors import RequestError, UnknownNameError

Row = dict[str, Any]


@dataclass(frozen=True)
class Quantity:
    """Column by which listed runs can be filtered or sorted.

    Attributes:
        column: Name of the column in `shunter.tracking.listing.COLUMNS`.
        units: Factor of each unit that a value may have; None for a text column.
        is_best_high: Whether high values are sorted first.
    """

    column: str
    units: Mapping[str, float] | None = field(default_factory=dict)
    is_best_high: bool = False


QUANTITIES = {
    "started": Quantity("started", is_best_high=True),
    "auc": Quantity("test_auc", is_best_high=True),
    "ne": Quantity("test_ne"),
    "rmse": Quantity("test_rmse"),
    "mae": Quantity("test_mae"),
    "time": Quantity("total_seconds", {"s": 1.0, "min": 60.0, "h": 3600.0}),
    "energy": Quantity("energy_joules", {"J": 1.0, "kJ": 1e3, "Wh": 3.6e3, "kWh": 3.6e6}),
    "auc-per-kj": Quantity("auc_per_kilojoule", is_best_high=True),
    "data": Quantity("data", None),
    "model": Quantity("model", None),
    "accelerator": Quantity("accelerator", None),
}
SORTED_BY = tuple(name for name, quantity in QUANTITIES.items() if quantity.units is not None)
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
_COMPARISON = re.compile(r"\s*([a-z-]+)\s*(>=|<=|!=|>|<|=)\s*(\S+)(?:\s+([A-Za-z]+))?\s*")
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)([A-Za-z]*)")


@dataclass(frozen=True)
class Comparison:
    """Condition on one column.

    Attributes:
        column: Name of the column.
        operator: One of `OPERATORS`.
        value: Number in the unit of the column, or text.
    """

    column: str
    operator: str
    value: float | str

    def holds(self, row: Row) -> bool:
        """Return True if the row has a value for which the condition is true."""
        value = row[self.column]
        return value is not None and OPERATORS[self.operator](value, self.value)


def parse_filter(text: str) -> tuple[Comparison, ...]:
    """Parse comparisons joined by `and`, such as `auc > .8 and time < 2 min`.

    Raises:
        RequestError: The text is not a valid condition, or names an unknown unit.
        UnknownNameError: The text names an unknown quantity.
    """
    return tuple(_comparison(part) for part in re.split(r"\s+and\s+", text))


def select_runs(rows: Sequence[Row], comparisons: Sequence[Comparison], sort: str, limit: int) -> list[Row]:
    """Return the runs that meet all conditions, the best value of `sort` first; runs without a value come last.

    Raises:
        UnknownNameError: The runs cannot be sorted by `sort`.
    """
    if sort not in SORTED_BY:
        raise UnknownNameError("quantity to sort by", sort, SORTED_BY)
    quantity = QUANTITIES[sort]
    sign = -1 if quantity.is_best_high else 1

    def place(row: Row) -> tuple[bool, float]:
        value = row[quantity.column]
        return value is None, 0.0 if value is None else sign * value

    return sorted((row for row in rows if all(one.holds(row) for one in comparisons)), key=place)[:limit]


def _comparison(text: str) -> Comparison:
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise RequestError(
            f"--where {text.strip()!r} is not a condition: write one such as 'auc > .8' or 'time < 2 min'."
        )
    name, sign, value, unit = match.groups()
    if name not in QUANTITIES:
        raise UnknownNameError("quantity of a run", name, tuple(QUANTITIES))
    quantity = QUANTITIES[name]
    if quantity.units is None:
        return Comparison(quantity.column, sign, value)
    number, known = _NUMBER.fullmatch(value), {"": 1.0, **quantity.units}
    if number is None or (number[2] and unit) or (written := number[2] or unit or "") not in known:
        allowed = f", which may have the unit {' or '.join(quantity.units)}" if quantity.units else ""
        raise RequestError(
            f"--where {name}: {value}{f' {unit}' if unit else ''} is not a number{allowed}: correct the value."
        )
    return Comparison(quantity.column, sign, float(number[1]) * known[written])
