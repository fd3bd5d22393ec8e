"""Figures in words, each with three digits and a unit of a fitting size."""

from shunter.hardware.units import JOULES_PER_KWH
from shunter.planner.assessment import Assessment, Interval
from shunter.requests import Objective


def format_cells(row: Assessment) -> dict[Objective, str]:
    """Time, energy and cost of the whole job for a narrow table, each with interval and source; `unknown` where so.

    Carbon is among them where the intensity of the electricity was given.
    """
    prediction, candidate = row.candidate.prediction, row.candidate
    price = candidate.price_per_hour
    cells = {
        Objective.TIME: f"{format_time(row.hours, row.hours_interval, '')} ({prediction.step_seconds_source})",
        Objective.ENERGY: "unknown",
        Objective.COST: "unknown",
    }
    if row.kwh is not None:
        cells[Objective.ENERGY] = f"{format_energy(row.kwh, row.kwh_interval, '')} ({prediction.energy_source})"
    if row.cost is not None and price is not None:
        cost = format_money(row.cost, row.cost_interval, "")
        cells[Objective.COST] = f"{cost} (at {candidate.machines * price:g} an hour, {candidate.price_source})"
    if row.carbon_grams is not None:
        cells[Objective.CARBON] = f"{format_carbon(row.carbon_grams, row.carbon_interval, '')} (given intensity)"
    return cells


def how_sure(level: float | None) -> str:
    """The last words of an interval; without a level it is the spread of the steps, and promises nothing."""
    return " by its steps alone" if level is None else f" with {100 * level:.0f} %"


def time_unit(hours: float) -> tuple[float, str]:
    """A unit of a fitting size, and how many of it are an hour."""
    return (3600.0, "s") if hours * 3600 < 120 else (60.0, "min") if hours < 2 else (1.0, "h")


def energy_unit(kwh: float) -> tuple[float, str]:
    """Kilowatt hours, or joules where they are few, and how many of it are a kilowatt hour."""
    return (1.0, "kWh") if kwh >= 0.01 else (JOULES_PER_KWH, "J")


def format_time(hours: float, interval: Interval | None = None, sure: str = "") -> str:
    """Hours in a unit of a fitting size, with the interval where there is one, and what that promises."""
    scale, unit = time_unit(hours)
    return _figure(hours, scale, f" {unit}", interval, sure)


def format_energy(kwh: float, interval: Interval | None = None, sure: str = "") -> str:
    """Kilowatt hours, or joules where they are few."""
    scale, unit = energy_unit(kwh)
    return _figure(kwh, scale, f" {unit}", interval, sure)


def format_carbon(grams: float, interval: Interval | None = None, sure: str = "") -> str:
    """Grams of CO2 equivalent, or kilograms where they are many."""
    scale, unit = (1.0, "g") if grams < 1000 else (1e-3, "kg")
    return _figure(grams, scale, f" {unit} CO2e", interval, sure)


def format_money(cost: float, interval: Interval | None = None, sure: str = "") -> str:
    """Money, in whatever currency."""
    return _figure(cost, 1.0, "", interval, sure)


def _figure(value: float, scale: float, unit: str, interval: Interval | None, sure: str) -> str:
    """For instance `40 s, 35 to 47 s with 90 %`."""
    text = f"{_digits(value * scale)}{unit}"
    if interval is None:
        return text
    low, high = interval
    return f"{text}, {_digits(low * scale)} to {_digits(high * scale)}{unit}{sure}"


def _digits(value: float) -> str:
    """Three digits, and never an exponent for what has more before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
