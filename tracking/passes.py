"""Logging of the tried passes (measured changes to a training job or to a trained model) in their run."""

from collections.abc import Sequence

from shunter.engine.passes.record import PassRecord
from shunter.tracking.reports import log_config
from shunter.tracking.runs import open_run


def log_passes(run_id: str, records: Sequence[PassRecord]) -> None:
    """Write the records as `config/passes.json` and their figures as `details/passes.json`; do nothing without records.

    Raises:
        TrackingError: The store fails.
    """
    if not records:
        return
    log_config(run_id, "passes", records)
    open_run(run_id).log_figures(
        "passes", {name: value for record in records for name, value in record.metrics.items()}
    )
