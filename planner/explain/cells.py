"""Formatting of figures with three digits and a unit of suitable size."""

from shunter.hardware.units import JOULES_PER_KWH
from shunter.planner.assessment import Interval


def how_sure(level: float | None) -> str:
    """Return the suffix of an interval: its probability, or a note that the probability is unknown."""
    return " unpromised" if level is None else f" with {100 * level:.0f} %"


def time_unit(hours: float) -> tuple[float, str]:
    """Return the factor from hours to a unit of suitable size, and the unit."""
    return (3600.0, "s") if hours * 3600 < 120 else (60.0, "min") if hours < 2 else (1.0, "h")


def energy_unit(kwh: float) -> tuple[float, str]:
    """Return the factor from kilowatt hours to kWh or (below 0.01 kWh) J, and the unit."""
    return (1.0, "kWh") if kwh >= 0.01 else (JOULES_PER_KWH, "J")


def format_time(hours: float, interval: Interval | None = None, sure: str = "") -> str:
    """Format hours in a unit of suitable size, with the interval and its probability if there is one."""
    scale, unit = time_unit(hours)
    return _figure(hours, scale, f" {unit}", interval, sure)


def format_energy(kwh: float, interval: Interval | None = None, sure: str = "") -> str:
    """Format kilowatt hours, as joules below 0.01 kWh."""
    scale, unit = energy_unit(kwh)
    return _figure(kwh, scale, f" {unit}", interval, sure)


def format_carbon(grams: float, interval: Interval | None = None, sure: str = "") -> str:
    """Format grams of CO2 equivalent, as kilograms from 1,000 g on."""
    scale, unit = (1.0, "g") if grams < 1000 else (1e-3, "kg")
    return _figure(grams, scale, f" {unit} CO2e", interval, sure)


def format_money(cost: float, interval: Interval | None = None, sure: str = "") -> str:
    """Format an amount of money without a currency."""
    return _figure(cost, 1.0, "", interval, sure)


def _figure(value: float, scale: float, unit: str, interval: Interval | None, sure: str) -> str:
    """Return text such as `40 s, 35 to 47 s with 90 %`."""
    text = f"{_digits(value * scale)}{unit}"
    if interval is None:
        return text
    low, high = interval
    return f"{text}, {_digits(low * scale)} to {_digits(high * scale)}{unit}{sure}"


def _digits(value: float) -> str:
    """Return three significant digits, without an exponent from 1,000 on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def format_difference(ratio: float) -> str:
    """Format the difference of a figure between two candidates, as `8.2% more`, `1.7% less` or `as much`.

    Args:
        ratio: Ratio of the candidate's figure to that of the other candidate.
    """
    share = f"{abs(ratio - 1):.1%}"
    return "as much" if share == "0.0%" else f"{share} {'more' if ratio > 1 else 'less'}"
