"""Display of a decision in the flow run: a table of all candidates, and the reason as text."""

from collections.abc import Callable

from shunter.hardware.units import JOULES_PER_KWH
from shunter.markdown import plain
from shunter.planner.assessment import Assessment, Interval
from shunter.planner.calibration import FEWEST
from shunter.planner.decide import Decision
from shunter.planner.explain.cells import format_carbon, format_energy, format_money, format_time, how_sure
from shunter.planner.job_size import JobSize
from shunter.requests import Objective

TABLE_KEY = "decision"
REASON_KEY = "decision-reason"
MOST_ROWS = 500  # Prefect stores an artifact in one field of its database


def publish(decision: Decision) -> None:
    """Store table and reason as Prefect artifacts of the running flow; do nothing outside of a flow."""
    from prefect.artifacts import create_markdown_artifact, create_table_artifact
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return
    rows = [{name: plain(text) for name, text in row.items()} for row in decision.shown_rows()[:MOST_ROWS]]
    left_out = "" if decision.considered <= MOST_ROWS else f" The first {MOST_ROWS} of {decision.considered} rows."
    create_markdown_artifact(
        markdown=as_markdown(decision),
        key=REASON_KEY,
        description="Chosen placement, the reason, and the predicted totals.",
    )
    create_table_artifact(table=rows, key=TABLE_KEY, description=f"{plain(decision.reason)}{left_out}")


def as_markdown(decision: Decision) -> str:
    """Return the explanation, the totals of the chosen placement, and the excluded candidates, as Markdown."""
    prediction, chosen = decision.prediction, decision.chosen
    price = chosen.candidate.price_source or "unknown"
    time, energy, cost = (
        how_sure(chosen.level(quantity)) for quantity in (Objective.TIME, Objective.ENERGY, Objective.COST)
    )
    memory = _gib(decision.memory_gib, chosen.memory_interval, how_sure(chosen.memory_level))
    lines = [
        f"# {plain(decision.placement.label)}",
        "",
        plain(decision.explanation or decision.reason),
        "",
        *(f"- {plain(note)}" for note in decision.notes),
        "",
        "| | expected for the whole job, with its interval | figure |",
        "|---|---|---|",
        f"| time | {format_time(decision.hours, chosen.hours_interval, time)} "
        f"| step {prediction.step_seconds_source} |",
        f"| energy | {_or_unknown(format_energy, decision.kwh, chosen.kwh_interval, energy)} "
        f"| power {prediction.energy_source} |",
        f"| cost | {_or_unknown(format_money, decision.cost, chosen.cost_interval, cost)} "
        f"| time and price ({plain(price)}) |",
        *_carbon_row(chosen),
        f"| memory | {memory} | {prediction.memory_source} |",
        "",
        calibration_text(decision),
        "",
        f"The job is {_expected(decision)}{decision.job.epochs:.3g} epochs: {_tuning(decision.job)} and "
        f"{decision.job.final_epochs:g} of final training, validation and checkpoints added.",
    ]
    excluded = [row for row in decision.table if row.excluded_by]
    if excluded:
        lines += ["", f"Excluded: {decision.considered - decision.feasible} of {decision.considered}.", ""]
        lines += [
            f"- {plain(row.candidate.placement.label)}: {', '.join(plain(miss.text) for miss in row.excluded_by)}"
            for row in excluded[:MOST_ROWS]
        ]
    return "\n".join(lines)


def calibration_text(decision: Decision) -> str:
    """Return a sentence on the past runs that the intervals of a decision are based on."""
    ratios, jobs = decision.calibration.seconds, "known" if decision.calibration.known else "new"
    if decision.chosen.time_level is None:
        few = f"{FEWEST - ratios.runs} more {jobs} job(s) have run to their end" if ratios.runs < FEWEST else ""
        tried = f"a placement like this was tried{' and ' if few else ''}" if decision.is_exploration else ""
        until = f"before {tried}{few}" if tried or few else "on another machine"
        return f"Intervals are those of the step time alone: how far whole jobs are off is not known {until}."
    return (
        f"Intervals hold with {100 * decision.chosen.time_level:.0f} % by how {ratios.runs} past predictions of {jobs} "
        "jobs turned out, which corrected the figures."
    )


def _carbon_row(chosen: Assessment) -> list[str]:
    """Return a table row with the carbon emissions; empty if the intensity of the electricity is unknown."""
    if chosen.carbon_grams is None:
        return []
    carbon = format_carbon(chosen.carbon_grams, chosen.carbon_interval, how_sure(chosen.energy_level))
    return [f"| carbon | {carbon} | energy and intensity (given) |"]


def _or_unknown(
    words: Callable[[float, Interval | None, str], str], value: float | None, interval: Interval | None, sure: str
) -> str:
    return "unknown" if value is None else words(value, interval, sure)


def _gib(value: float, interval: Interval | None, sure: str) -> str:
    return f"{value:.3g} GiB" if interval is None else f"{value:.3g} GiB, {interval[0]:.3g} to {interval[1]:.3g}{sure}"


def _expected(decision: Decision) -> str:
    """Return how many of the planned epochs are expected."""
    if decision.is_upper_estimate:
        return "at most "
    return f"~{decision.job.epochs * decision.chosen.candidate.work_share:.3g} of at most "


def _tuning(job: JobSize) -> str:
    budgets = (
        f"{job.tuning_seconds / 60:.4g} minutes" if job.tuning_seconds is not None else "",
        f"{job.tuning_joules / JOULES_PER_KWH:.4g} kWh" if job.tuning_joules is not None else "",
    )
    own = " or ".join(filter(None, budgets))
    return f"{own} of tuning beside them" if own else f"{job.tuning_epochs:g} of tuning"
