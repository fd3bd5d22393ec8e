"""Table of a decision as flat rows, for display and storage."""

from shunter.planner.assessment import Assessment, Interval
from shunter.planner.explain.cells import format_difference, format_energy, format_money, format_time
from shunter.requests import Objective, Weights

Row = dict[str, str | int | float | bool | None]


def table_row(row: Assessment, chosen: Assessment, weights: Weights) -> Row:
    """Return one candidate's figures with units in the names, intervals, sources, and why it was not chosen."""
    placement, prediction = row.candidate.placement, row.candidate.prediction
    return {
        "rank": row.rank,
        "placement": placement.label,
        "accelerator": placement.accelerator,
        "is_here": row.candidate.is_here,
        "threads": placement.threads,
        "precision": placement.precision,
        "batch_size": placement.batch_size,
        "machines": row.candidate.machines,
        "step_milliseconds": round(prediction.step_seconds * 1000, 4),
        "step_source": prediction.step_seconds_source,
        "samples_per_second": round(prediction.samples_per_second, 1),
        "hours": _significant(row.hours),
        **_bounds("hours", row.interval(Objective.TIME)),
        "kwh": _significant(row.kwh),
        "time_level": row.time_level,
        **_bounds("kwh", row.interval(Objective.ENERGY)),
        "energy_level": row.energy_level,
        "energy_source": prediction.energy_source,
        "watts": _significant(row.watts),
        "cost": _significant(row.cost),
        **_bounds("cost", row.interval(Objective.COST)),
        "carbon_grams": _significant(row.carbon_grams),
        "price_source": row.candidate.price_source,
        "memory_gib": _significant(row.memory_gib),
        **_bounds("memory_gib", row.memory_interval),
        "memory_level": row.memory_level,
        "memory_source": prediction.memory_source,
        "work_share": _significant(row.candidate.work_share),
        "quality_probability": _significant(row.candidate.quality_probability),
        **_quality_loss(row),
        "on_pareto_front": row.on_front,
        "excluded_by": "; ".join(miss.text for miss in row.excluded_by) or None,
        "lost_because": lost_because(row, chosen, weights),
    }


def shown_row(row: Assessment, chosen: Assessment, weights: Weights) -> dict[str, str]:
    """Return one candidate for display: placement, outcome, reason, and totals of the whole job."""
    prediction, candidate = row.candidate.prediction, row.candidate
    energy = "unknown" if row.kwh is None else f"{format_energy(row.kwh)} ({prediction.energy_source})"
    why = lost_because(row, chosen, weights)
    return {
        "placement": candidate.placement.label,
        "outcome": "chosen" if why is None else "excluded" if row.excluded_by else "behind",
        "why": why or f"least {format_objective(weights)} within the limits",
        "time": f"{format_time(row.hours)} ({prediction.step_seconds_source})",
        "energy": energy,
        "cost": "unknown" if row.cost is None else f"{format_money(row.cost)} ({candidate.price_source})",
        "memory": f"{row.memory_gib:.3g} GiB ({prediction.memory_source})",
        "where": "this machine" if candidate.is_here else "elsewhere",
    }


def lost_because(row: Assessment, chosen: Assessment, weights: Weights) -> str | None:
    """Return a short reason why the candidate was not chosen; None for the chosen candidate."""
    if row.rank == chosen.rank:
        return None
    if row.excluded_by:
        return "; ".join(miss.text for miss in row.excluded_by)
    ratio = row.score(weights) / chosen.score(weights)
    if ratio == 1:
        return "equal objective, but slower or uses more of the machine"
    return f"needs {format_difference(ratio)} {format_objective(weights)}"


def format_objective(weights: Weights) -> str:
    """Return the objective as a noun: `time`, `energy-delay product (time x energy)`, or `time x energy^0.5`."""
    product = " x ".join(str(name) if weight == 1 else f"{name}^{weight:g}" for name, weight in weights.used.items())
    return f"energy-delay product ({product})" if weights == Weights.parse("edp") else product


def _quality_loss(row: Assessment) -> Row:
    """Return the loss of NE as a share, with its interval; nothing where it is unknown."""
    loss = row.candidate.quality_loss
    if loss is None:
        return {}
    return {"quality_loss": _significant(loss.expected), **_bounds("quality_loss", (loss.low, loss.high))}


def _bounds(name: str, interval: Interval | None) -> Row:
    low, high = interval or (None, None)
    return {f"{name}_low": _significant(low), f"{name}_high": _significant(high)}


def _significant(value: float | None) -> float | None:
    """Round to four significant digits; predictions are not more precise."""
    return None if value is None else float(f"{value:.4g}")
