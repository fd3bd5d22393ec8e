"""What a run of kind `plan` keeps: the figures of the simulated step, and the plan with its files."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tracking.reports import log_files
from tracking.runs import open_run


def log_plan(
    run_id: str, params: Mapping[str, str | int | float], metrics: Mapping[str, float], files: Iterable[Path]
) -> None:
    """Keep a plan: `plan.*`, and its files at the root of the run.

    Raises:
        TrackingError: The store fails.
    """
    run = open_run(run_id)
    run.log_params({f"plan.{name}": value for name, value in params.items()})
    run.log_metrics({f"plan.{name}": value for name, value in metrics.items()})
    log_files(run_id, files)
