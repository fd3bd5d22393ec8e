"""How the times of a log are written: what the schema may say of it, and what the values themselves tell."""

from dataclasses import dataclass
from typing import Literal

UNITS = {"seconds": 10**6, "milliseconds": 10**3, "microseconds": 1, "nanoseconds": 10**-3}  # in microseconds
DAY_FIRST, MONTH_FIRST = "day_first", "month_first"


@dataclass(frozen=True)
class TimeReading:
    """How the values of a time column are read.

    Attributes:
        format: Unit, order or pattern that the schema names, see `check_format`; None where it leaves it open.
        kind: Whether the column holds numbers or dates, where a few values are of the other kind.
        unit: Unit of the numbers, where a few are in another one.
        day_first: Whether 03/04/2026 is in April; None while nothing tells.
    """

    format: str | None = None
    kind: Literal["any", "numbers", "dates"] = "any"
    unit: str | None = None
    day_first: bool | None = None

    @property
    def expected(self) -> str:
        """What a value has to be."""
        if self.format is not None:
            return f"a time of the format {self.format}"
        if self.unit is not None:
            return f"a time in {self.unit}, as the other rows have it"
        if self.kind == "any" and self.day_first is None:
            return "a number, a date or an ISO 8601 time"
        return "a number, as the other rows have it" if self.kind == "numbers" else "a date, as the other rows have it"


AS_WRITTEN = TimeReading()


def check_format(text: str) -> str:
    """A format as the schema may name one.

    Raises:
        ValueError: It is none.
    """
    if text not in (*UNITS, DAY_FIRST, MONTH_FIRST) and "%" not in text:
        known = ", ".join((*UNITS, DAY_FIRST, MONTH_FIRST))
        raise ValueError(f"the format {text!r} of the time is not known, use {known} or a pattern such as %d.%m.%Y")
    return text
