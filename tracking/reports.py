"""What a parent run keeps for the eye: the configuration, files and the training curves."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from engine.config import SelectBy
from engine.results import EpochReport
from shunter.requests import JOB_FILE, Request, job_text
from tracking.runs import open_run
from tracking.store import tracking_errors
from tracking.training_curve import training_curve_page

TRAINING_CURVE = "training_curve.html"


def log_config(run_id: str, name: str, config: BaseModel | Sequence[BaseModel] | Mapping[str, Any]) -> None:
    """Keep a configuration, or anything else made of plain values, as the artifact `config/<name>.json`.

    Raises:
        TrackingError: the store fails.
    """
    log_text(run_id, f"config/{name}.json", TypeAdapter(Any).dump_json(config, indent=1).decode())


def log_request(run_id: str, request: Request, command: str) -> None:
    """Keep what was asked for, for a program and as the job file that `shunter COMMAND --config` takes again.

    Raises:
        TrackingError: the store fails.
    """
    log_config(run_id, "request", request.flat())
    log_text(run_id, JOB_FILE, job_text(request, command))


def log_text(run_id: str, name: str, text: str) -> None:
    """Keep a text as an artifact.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    with tracking_errors():
        run.client.log_text(run_id, text, name)


def log_files(run_id: str, paths: Iterable[Path], folder: str | None = None) -> None:
    """Keep files as artifacts, in a folder of the run or at its root.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    with tracking_errors():
        for path in paths:
            run.client.log_artifact(run_id, str(path), folder)


def log_training_curve(
    parent_run_id: str, histories: Mapping[str, Sequence[EpochReport]], select_by: SelectBy = "ne"
) -> None:
    """Keep one figure with the curves of several trainings, as the artifact `training_curve.html`.

    Args:
        parent_run_id: Run that shows it.
        histories: Reports of each training, by the name it shall bear in the legend.
        select_by: Figure by which an epoch is the best.

    Raises:
        TrackingError: the store fails.
    """
    log_text(parent_run_id, TRAINING_CURVE, training_curve_page(histories, select_by))
