"""Logging of plans: figures and files in runs of kind `plan`, and the plan in a training run that follows a plan."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shunter.tracking.reports import log_files, log_text
from shunter.tracking.runs import open_run


def log_plan(
    run_id: str, params: Mapping[str, str | int | float], metrics: Mapping[str, float], files: Iterable[Path]
) -> None:
    """Write a plan: parameters and metrics `plan.*`, and the files at the root of the run.

    Raises:
        TrackingError: The store fails.
    """
    run = open_run(run_id)
    run.log_params({f"plan.{name}": value for name, value in params.items()})
    run.log_metrics({f"plan.{name}": value for name, value in metrics.items()})
    log_files(run_id, files)


TRAINED_PLAN = "plan.json"


def log_trained_plan(run_id: str, path: Path, details: Mapping[str, Any]) -> None:
    """Write the plan that the training jobs of a run follow: the file in `plans/`, and details for the report page.

    Args:
        run_id: Parent run.
        path: File of the plan.
        details: Plain values: `tables`, and `rivals` for a plan found by search.

    Raises:
        TrackingError: The store fails.
    """
    log_files(run_id, [path], "plans")
    log_text(run_id, TRAINED_PLAN, json.dumps(details))


def log_executed(run_id: str, predicted_seconds: float, measured_seconds: float) -> None:
    """Write the predicted and the measured step time of a plan in a training run, in seconds.

    Raises:
        TrackingError: The store fails.
    """
    open_run(run_id).log_metrics(
        {"plan.predicted_step_seconds": predicted_seconds, "plan.measured_step_seconds": measured_seconds}
    )
