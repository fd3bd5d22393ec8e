"""Past trainings, read back from MLflow."""

import pandas as pd

from shunter.settings import Settings
from tasks.track.store import EXPERIMENT, is_file_store, open_store, tracking_errors

# Column of the list -> the kind of entry and its name in the convention.
COLUMNS = {
    "data": ("params", "data.name"),
    "model": ("params", "request.model"),
    "objective": ("params", "request.objective"),
    "placement": ("params", "placement.label"),
    "test_auc": ("metrics", "quality.test.auc"),
    "test_ne": ("metrics", "quality.test.ne"),
    "validation_auc": ("metrics", "quality.auc"),
    "validation_ne": ("metrics", "quality.ne"),
    "total_seconds": ("metrics", "time.total_seconds"),
    "energy_joules": ("metrics", "energy.joules"),
    "energy_source": ("tags", "energy.source"),
    "registered": ("tags", "model.registered"),
}


def list_runs(limit: int = 20) -> pd.DataFrame:
    """Past trainings, newest first; what a run did not come to is missing.

    Args:
        limit: most runs.

    Returns:
        One row a training: `run_id`, `started` (UTC), `status`, and the names in `COLUMNS`.

    Raises:
        TrackingError: the store cannot be read.
    """
    runs = []
    # Looking at an empty history must not create a database.
    if not is_file_store() or (Settings().tracking_root / "mlflow.db").exists():
        client = open_store()
        with tracking_errors():
            experiment = client.get_experiment_by_name(EXPERIMENT)
            if experiment is not None:
                runs = client.search_runs(
                    [experiment.experiment_id],
                    "tags.`run.kind` = 'train'",
                    max_results=limit,
                    order_by=["attributes.start_time DESC"],
                )
    rows = [
        {
            "run_id": run.info.run_id,
            "started": pd.Timestamp(run.info.start_time, unit="ms", tz="UTC"),
            "status": run.info.status,
            **{column: getattr(run.data, kind).get(name) for column, (kind, name) in COLUMNS.items()},
        }
        for run in runs
    ]
    return pd.DataFrame(rows, columns=pd.Index(["run_id", "started", "status", *COLUMNS]))
