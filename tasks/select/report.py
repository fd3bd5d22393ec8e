"""Shows a decision to whoever looks at the flow run: a table of all candidates, and the reason in words."""

from hardware.budget import JOULES_PER_KWH
from planner.assessment import Assessment, Interval
from planner.decide import Decision
from planner.describe import JobSize
from shunter.requests import Objective

TABLE_KEY = "decision"
REASON_KEY = "decision-reason"
MOST_ROWS = 500  # Prefect keeps an artifact in one field of its database


def publish(decision: Decision) -> None:
    """Store the table and the reason as Prefect artifacts of the running flow; outside of a flow do nothing."""
    from prefect.artifacts import create_markdown_artifact, create_table_artifact
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return
    rows = decision.table_rows()
    left_out = "" if decision.considered <= MOST_ROWS else f" The first {MOST_ROWS} of {decision.considered} rows."
    create_table_artifact(table=rows[:MOST_ROWS], key=TABLE_KEY, description=f"{decision.reason}{left_out}")
    create_markdown_artifact(markdown=as_markdown(decision), key=REASON_KEY)


def as_markdown(decision: Decision) -> str:
    """The explanation, the totals of the chosen placement, and which limit excluded how many candidates."""
    prediction, chosen = decision.prediction, decision.chosen
    price = chosen.candidate.price_source or "unknown"
    time, energy, cost = (
        _range(chosen.interval(quantity)) for quantity in (Objective.TIME, Objective.ENERGY, Objective.COST)
    )
    lines = [
        f"# {decision.placement.label}",
        "",
        decision.reason,
        "",
        decision.explanation,
        "",
        *(f"- {note}" for note in decision.notes),
        "",
        "| | expected for the whole job | with 90 % | figure |",
        "|---|---|---|---|",
        f"| time | {decision.hours:.4g} h | {time} | step {prediction.step_seconds_source} |",
        f"| energy | {_or_unknown(decision.kwh)} kWh | {energy} | power {prediction.energy_source} |",
        f"| cost | {_or_unknown(decision.cost)} | {cost} | time and price ({price}) |",
        *_carbon_row(chosen),
        f"| memory | {decision.memory_gib:.3g} GiB | | {prediction.memory_source} |",
        "",
        "Intervals are those of the step time; power, price and the number of epochs are taken as they are.",
        "",
        f"The job is {decision.job.epochs:.3g} epochs, an upper estimate: {_tuning(decision.job)} and "
        f"{decision.job.final_epochs:g} of final training, validation added.",
    ]
    excluded = [row for row in decision.table if row.excluded_by]
    if excluded:
        lines += ["", f"Excluded: {decision.considered - decision.feasible} of {decision.considered}.", ""]
        lines += [
            f"- {row.candidate.placement.label}: {', '.join(miss.text for miss in row.excluded_by)}"
            for row in excluded[:MOST_ROWS]
        ]
    return "\n".join(lines)


def _carbon_row(chosen: Assessment) -> list[str]:
    """One line where the electricity's intensity is known."""
    if chosen.carbon_grams is None:
        return []
    interval = _range(chosen.carbon_interval)
    return [f"| carbon | {chosen.carbon_grams:.4g} g CO2e | {interval} | energy and intensity (given) |"]


def _or_unknown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _range(interval: Interval | None) -> str:
    return "unknown" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"


def _tuning(job: JobSize) -> str:
    budgets = (
        f"{job.tuning_seconds / 60:.4g} minutes" if job.tuning_seconds is not None else "",
        f"{job.tuning_joules / JOULES_PER_KWH:.4g} kWh" if job.tuning_joules is not None else "",
    )
    own = " or ".join(filter(None, budgets))
    return f"{own} of tuning beside them" if own else f"{job.tuning_epochs:g} of tuning"
