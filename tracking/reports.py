"""Logging of a parent run's configuration, files and tried passes."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from shunter.engine.passes.record import PassRecord
from shunter.requests import Request
from shunter.requests.job_file import JOB_FILE, job_text
from shunter.tracking.patience import PatientCaller
from shunter.tracking.runs import open_run
from shunter.tracking.store import open_store, tracking_errors


def log_config(run_id: str, name: str, config: BaseModel | Sequence[BaseModel] | Mapping[str, Any]) -> None:
    """Log a configuration, or any other JSON value, as the artifact `config/<name>.json`.

    Raises:
        TrackingError: the store fails.
    """
    log_text(run_id, f"config/{name}.json", TypeAdapter(Any).dump_json(config, indent=1).decode())


def log_request(run_id: str, request: Request, command: str) -> None:
    """Log the request, as JSON for programs and as the job file that `shunter COMMAND --config` accepts.

    Raises:
        TrackingError: the store fails.
    """
    log_config(run_id, "request", request.flat())
    log_text(run_id, JOB_FILE, job_text(request, command))


def log_text(run_id: str, name: str, text: str) -> None:
    """Log a text as an artifact.

    Raises:
        TrackingError: the store fails.
    """
    log_texts(run_id, {name: text})


def log_texts(run_id: str, files: Mapping[str, str]) -> None:
    """Write texts as artifacts by their paths within the run; existing artifacts are replaced.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    with tracking_errors():
        for path, text in files.items():
            run.client.log_text(run_id, text, path)


def log_files(run_id: str, paths: Iterable[Path], folder: str | None = None) -> None:
    """Log files as artifacts, in a folder of the run or at its root.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    with tracking_errors():
        for path in paths:
            run.client.log_artifact(run_id, str(path), folder)


def log_passes(run_id: str, records: Sequence[PassRecord]) -> None:
    """Write tried passes (measured changes to a training job or a trained model) and their figures, if there are any.

    Raises:
        TrackingError: The store fails.
    """
    if not records:
        return
    log_config(run_id, "passes", records)
    open_run(run_id).log_figures(
        "passes", {name: value for record in records for name, value in record.metrics.items()}
    )


def artifact_link(run_id: str, path: str) -> str:
    """Return the link to an artifact relative to any page of MLflow's UI; the read is retried if the store fails.

    Raises:
        TrackingError: the store cannot be read.
    """
    client = open_store()
    real = client.real_id(run_id)
    with tracking_errors():
        run = PatientCaller("the lookup of the run")(lambda: client.mlflow.get_run(real))
    return f"#/experiments/{run.info.experiment_id}/runs/{real}/artifacts/{path}"
