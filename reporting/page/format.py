"""Formatting of numbers, times and durations."""

import math
from datetime import UTC, datetime
from typing import Any


def figure(value: Any, digits: int = 4) -> str:
    """Return a number with the given significant digits, without an exponent if the text remains short."""
    if isinstance(value, str) or value is None:
        return value or "-"
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 1e-5 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - (math.floor(math.log10(abs(value))) if value else 0))
        return f"{value:,.{decimals}f}"
    return f"{value:.{digits - 1}e}"


def moment(seconds: float) -> str:
    """Return a Unix time as date and time in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def energy(kwh: float) -> str:
    """Return an energy in kilowatt hours, or in joules if it is small."""
    return f"{figure(kwh, 3)} kWh" if kwh >= 0.01 else f"{figure(3.6e6 * kwh, 3)} J"
