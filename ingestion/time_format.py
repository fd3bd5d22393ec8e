"""Format of the times in a log, from the schema or detected from the values."""

from dataclasses import dataclass
from typing import Literal

UNITS = {"seconds": 10**6, "milliseconds": 10**3, "microseconds": 1, "nanoseconds": 10**-3}  # in microseconds
DAY_FIRST, MONTH_FIRST = "day_first", "month_first"


@dataclass(frozen=True)
class TimeReading:
    """Interpretation of the values of a time column.

    Attributes:
        format: Unit, order or pattern named in the schema, see `check_format`; None if the schema names none.
        kind: Kind of all valid values: `numbers` or `dates` if the column mixes both, else `any`.
        unit: Unit of all valid numbers if the column mixes units; else None.
        day_first: Whether 03/04/2026 is in April; None if unknown.
    """

    format: str | None = None
    kind: Literal["any", "numbers", "dates"] = "any"
    unit: str | None = None
    day_first: bool | None = None

    @property
    def expected(self) -> str:
        """Description of a valid value, for error messages."""
        if self.format is not None:
            return f"a time of the format {self.format}"
        if self.unit is not None:
            return f"a time in {self.unit}, as the other rows have it"
        if self.kind == "any" and self.day_first is None:
            return "a number, a date or an ISO 8601 time"
        return "a number, as in the other rows" if self.kind == "numbers" else "a date, as in the other rows"


AS_WRITTEN = TimeReading()


def check_format(text: str) -> str:
    """Return the time format of a schema if valid: a unit, `day_first`, `month_first` or a pattern with `%`.

    Raises:
        ValueError: The text is no valid time format.
    """
    if text not in (*UNITS, DAY_FIRST, MONTH_FIRST) and "%" not in text:
        known = ", ".join((*UNITS, DAY_FIRST, MONTH_FIRST))
        raise ValueError(f"unknown format {text!r} of the time: use {known} or a pattern such as %d.%m.%Y")
    return text
