"""Parameters, metrics and tags of the stalls in an MLflow run of kind `profile`."""

from collections.abc import Iterable

from shunter.extensions.stalls.report import StallReport
from shunter.tracking.convention import Values
from shunter.tracking.reports import log_config
from shunter.tracking.runs import open_run
from shunter.tracking.store import tracking_errors


def log_stalls(run_id: str, report: StallReport, advice: Iterable[str]) -> None:
    """Log the stalls, the times of the runs from which the stalls are computed, and the advice.

    Raises:
        TrackingError: The tracking store fails.
    """
    run = open_run(run_id)
    run.log_params(stall_params(report))
    run.log_metrics(stall_metrics(report))
    run.set_tags(stall_tags(report))
    with tracking_errors():
        run.client.log_text(run_id, "\n".join(advice) + "\n", "advice.txt")
    log_config(run_id, "stalls", report)


def stall_params(report: StallReport) -> Values:
    """Return the measurement conditions (model, batch size, devices and so on) as parameters."""
    return {
        "data.name": report.data_name,
        "model.family": report.model,
        "stall.accelerator": report.accelerator,
        "stall.devices": report.devices,
        "stall.threads": report.threads,
        "stall.batch_size": report.batch_size,
        "stall.precision": report.precision,
    }


def stall_metrics(report: StallReport) -> Values:
    """Return as metrics the seconds per step of runs and stalls, intervals, shares, and gains of zero-skipping."""
    values: Values = {f"stall.run.{name}_seconds": time.seconds for name, time in report.runs.items()}
    for stall in report.stalls:
        if stall.seconds is None:
            continue
        figures = {
            "seconds": stall.seconds,
            "low_seconds": stall.low_seconds,
            "high_seconds": stall.high_seconds,
            "share": stall.share_of_slow_run,
            "total_seconds": stall.total_seconds,
        }
        values.update({f"stall.{stall.name}_{name}": value for name, value in figures.items() if value is not None})
    return {**values, **(report.useful.metrics if report.useful else {})}


def stall_tags(report: StallReport) -> dict[str, str]:
    """Return for each stall whether it was measured or simulated, or why there is no value."""
    tags = {
        f"stall.{stall.name}": f"{stall.state}: {stall.reason}" if stall.reason else stall.state
        for stall in report.stalls
    }
    return {**tags, "stall.communication_model": report.communication_note}
