"""Decision of a run in MLflow: the placement, its prediction, and table, text and figure of the candidates."""

from typing import Any

from shunter.planner.decide import Decision
from shunter.tracking.convention import placement_params, prediction_metrics, prediction_tags, workload_params
from shunter.tracking.learning import log_steps
from shunter.tracking.runs import open_run
from shunter.tracking.store import tracking_errors

DECISION_TABLE = "decision.json"
DECISION_TEXT = "decision.md"
DECISION_FIGURE = "decision.png"


def log_decision(parent_run_id: str, decision: Decision) -> None:
    """Log the chosen placement and its reason, its predicted time, and all candidates as table and figure.

    Raises:
        TrackingError: The store fails, or the run holds another decision.
    """
    from shunter.reporting.decision_figure import decision_figure

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
        run.client.log_figure(parent_run_id, decision_figure(decision), DECISION_FIGURE)


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
