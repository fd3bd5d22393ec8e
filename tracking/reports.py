"""Logging of a parent run's configuration and files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from shunter.requests import Request
from shunter.requests.job_file import JOB_FILE, job_text
from shunter.tracking.runs import open_run
from shunter.tracking.store import tracking_errors


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
    run = open_run(run_id)
    with tracking_errors():
        run.client.log_text(run_id, text, name)


def log_files(run_id: str, paths: Iterable[Path], folder: str | None = None) -> None:
    """Log files as artifacts, in a folder of the run or at its root.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    with tracking_errors():
        for path in paths:
            run.client.log_artifact(run_id, str(path), folder)
