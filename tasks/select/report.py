"""Display of a decision in the flow run: a table of all candidates, and the reason as text."""

from collections.abc import Callable
from typing import Any

from shunter.hardware.units import JOULES_PER_KWH
from shunter.markdown import plain
from shunter.planner.assessment import Assessment, Interval
from shunter.planner.calibration import FEWEST
from shunter.planner.decide import Decision
from shunter.planner.explain.cells import format_carbon, format_energy, format_money, format_time, how_sure
from shunter.planner.job_size import JobSize
from shunter.requests import Objective
from shunter.tracking.convention import placement_params, prediction_metrics, prediction_tags, workload_params
from shunter.tracking.learning import log_steps
from shunter.tracking.runs import open_run
from shunter.tracking.store import tracking_errors

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
    ratios, jobs = decision.calibration.seconds, "this and similar jobs" if decision.calibration.known else "other jobs"
    if decision.chosen.time_level is None:
        few = f"{FEWEST - ratios.runs} more runs of {jobs} have finished" if ratios.runs < FEWEST else ""
        tried = f"a similar placement has been tried{' and ' if few else ''}" if decision.is_exploration else ""
        until = f"until {tried}{few}" if tried or few else "on another machine"
        return f"Intervals cover the step time only; the error of whole jobs is unknown {until}."
    return (
        f"Intervals have {100 * decision.chosen.time_level:.0f} % confidence, from the errors of {ratios.runs} past "
        f"predictions for {jobs}; the same errors corrected the figures."
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
    """Return the text before the number of planned epochs: `at most `, or `~12 of at most ` for 12 expected epochs."""
    if decision.is_upper_estimate:
        return "at most "
    return f"~{decision.job.epochs * decision.chosen.candidate.work_share:.3g} of at most "


def _tuning(job: JobSize) -> str:
    budgets = (
        f"{job.tuning_seconds / 60:.4g} minutes" if job.tuning_seconds is not None else "",
        f"{job.tuning_joules / JOULES_PER_KWH:.4g} kWh" if job.tuning_joules is not None else "",
    )
    own = " or ".join(filter(None, budgets))
    return f"{own} of tuning in addition" if own else f"{job.tuning_epochs:g} of tuning"


DECISION_TABLE = "decision.json"
DECISION_TEXT = "decision.md"


def log_decision(parent_run_id: str, decision: Decision) -> None:
    """Log the chosen placement and its reason, its predicted time, and the table of all candidates.

    Raises:
        TrackingError: The store fails, or the run holds another decision.
    """
    run = open_run(parent_run_id)
    run.log_params({**placement_params(decision.placement), "placement/accelerator": decision.placement.accelerator})
    if decision.workload is not None:
        run.log_params(workload_params(decision.workload))
    run.log_figures("prediction", {**prediction_metrics(decision.prediction), **_job_metrics(decision)})
    run.set_tags(
        {
            **prediction_tags(decision.prediction),
            "decision.reason": decision.reason,
            "decision.binds": decision.binds or "nothing",
            **_exploration_tags(decision),
        }
    )
    log_steps(parent_run_id, decision.observations)
    columns: dict[str, list[Any]] = {}
    for row in decision.table_rows():
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    with tracking_errors():
        # MLflow appends to an existing table, which would double the rows of a resumed run.
        if DECISION_TABLE not in {file.path for file in run.client.list_artifacts(parent_run_id)}:
            run.client.log_table(parent_run_id, data=columns, artifact_file=DECISION_TABLE)
        notes = "".join(f"\n- {note}" for note in decision.notes)
        text = f"{decision.explanation or decision.reason}\n{notes}\n"
        run.client.log_text(parent_run_id, text, DECISION_TEXT)


def _exploration_tags(decision: Decision) -> dict[str, str]:
    if decision.exploration is None:
        return {}
    if decision.exploration.paired is not None:
        return {"decision.pairing": decision.exploration.paired.label}
    return {"decision.exploration": f"instead of {decision.exploration.best_known.label}"}


def _job_metrics(decision: Decision) -> dict[str, float]:
    """Return the predicted seconds of the job, their bounds, and the seconds with all planned epochs."""
    metrics = {"prediction.job_seconds": decision.hours * 3600, "prediction.plan_seconds": decision.plan_seconds}
    chosen = decision.chosen
    if chosen.time_level is not None and chosen.hours_interval is not None:
        low, high = (hours * 3600 for hours in chosen.hours_interval)
        metrics |= {"prediction.job_seconds_low": low, "prediction.job_seconds_high": high}
        metrics["prediction.interval_level"] = chosen.time_level
    if decision.tier_miss_rate is not None:
        metrics["prediction.tier_miss_rate"] = decision.tier_miss_rate
    if decision.tier_highest_miss_rate is not None:
        metrics["prediction.tier_highest_miss_rate"] = decision.tier_highest_miss_rate
    return metrics
