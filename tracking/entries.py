"""Writes to runs as plain entries: what the outbox keeps of them, and how MLflow takes them."""

import errno
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shunter.errors import TrackingError, first_line
from shunter.secrets import without_secrets
from shunter.tracking.outbox import Entry, StoreAwayError, WriteFailedError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

KEY = "run.key"  # tag of a run: what was asked for once is there once
AWAY = {"INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"}
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
Point = tuple[str, float, int, int]
"""Name of a metric, its value, milliseconds since 1970, and the step."""


def create_run(name: str, tags: Mapping[str, str]) -> Entry:
    """Open a run; its tag `run.key` tells whether the store has it already."""
    own = {**tags, KEY: uuid.uuid4().hex}
    return {"call": "create_run", "name": without_secrets(name), "tags": own, "start_time": _now()}


def log_batch(
    run_id: str,
    points: Sequence[Point] = (),
    params: Mapping[str, str] = MappingProxyType({}),
    tags: Mapping[str, str] = MappingProxyType({}),
) -> Entry:
    """Write metrics, parameters and tags at once."""
    return {
        "call": "log_batch",
        "run_id": run_id,
        "metrics": [list(point) for point in points],
        "params": {name: without_secrets(text) for name, text in params.items()},
        "tags": {name: without_secrets(text) for name, text in tags.items()},
    }


def log_text(run_id: str, text: str, path: str) -> Entry:
    """Write a text as an artifact."""
    return {"call": "log_text", "run_id": run_id, "text": without_secrets(text), "path": path}


def log_artifact(run_id: str, file: str, folder: str | None) -> Entry:
    """Write a file as an artifact."""
    return {"call": "log_artifact", "run_id": run_id, "file": file, "folder": folder}


def log_inputs(run_id: str, datasets: Sequence["DatasetInput"]) -> Entry:
    """Name the data of a run."""
    inputs = [{**dict(data.dataset), "tags": {tag.key: tag.value for tag in data.tags}} for data in datasets]
    return {"call": "log_inputs", "run_id": run_id, "inputs": inputs}


def set_terminated(run_id: str, status: str) -> Entry:
    """Close a run, now."""
    return {"call": "set_terminated", "run_id": run_id, "status": status, "end_time": _now()}


def hand_over(client: "MlflowClient", entry: Entry, experiment_id: Callable[[], str], directory: Path) -> str | None:
    """Let MLflow take an entry.

    Args:
        client: MLflow's client.
        entry: Write, with the store's own ids of runs.
        experiment_id: Function that finds the experiment of a run that is opened.
        directory: Folder of the outbox, where files of waiting entries lie.

    Returns:
        The store's id of a run that was opened; None for other writes.

    Raises:
        StoreAwayError: The store does not answer; what it says about the write itself passes.
    """
    return or_away(client, lambda: _hand_over(client, entry, experiment_id, directory))


def _hand_over(client: "MlflowClient", entry: Entry, experiment_id: Callable[[], str], directory: Path) -> str | None:
    from mlflow.entities import Metric, Param, RunTag

    run_id = entry.get("run_id", "")
    match entry["call"]:
        case "create_run":
            return _create_once(client, entry, experiment_id())
        case "log_batch":
            metrics = [Metric(*point) for point in entry["metrics"]]
            params = [Param(key, text) for key, text in entry["params"].items()]
            tags = [RunTag(key, text) for key, text in entry["tags"].items()]
            client.log_batch(run_id, metrics=metrics, params=params, tags=tags)
        case "log_text":
            client.log_text(run_id, entry["text"], entry["path"])
        case "log_artifact":
            client.log_artifact(run_id, str(directory / entry["file"]), entry["folder"])  # an absolute path stays
        case "log_inputs":
            client.log_inputs(run_id, list(map(_dataset_input, entry["inputs"])))
        case "set_terminated":
            client.set_terminated(run_id, entry["status"], entry["end_time"])
    return None


def _create_once(client: "MlflowClient", entry: Entry, experiment_id: str) -> str:
    """Open a run, unless that was done and only the answer was lost; of runs opened twice by a resend one stays."""
    key = entry["tags"].get(KEY)  # none in what a former version kept

    def found() -> list[Any]:
        return list(client.search_runs([experiment_id], f"tags.`{KEY}` = '{key}'")) if key else []

    there = found() if "run_id" in entry else []  # one that waited may have been opened
    if not there:
        there = [
            client.create_run(experiment_id, start_time=entry["start_time"], run_name=entry["name"], tags=entry["tags"])
        ]
        if str(client.tracking_uri).startswith("http"):  # where a request is sent again that got no answer
            there = found() or there
    first, *again = sorted(there, key=lambda run: run.info.run_id)
    for run in again:
        client.delete_run(run.info.run_id)
    return str(first.info.run_id)


def _dataset_input(values: Mapping[str, Any]) -> "DatasetInput":
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(**{name: value for name, value in values.items() if name != "tags"})
    return DatasetInput(dataset, [InputTag(key, text) for key, text in values["tags"].items()])


def or_away(client: "MlflowClient", call: Callable[[], Any]) -> Any:
    """What `call` gives.

    Raises:
        StoreAwayError: The store does not answer; what it says about the call itself passes.
        WriteFailedError: It answers, and failed inside itself, or the answer makes no sense.
    """
    from mlflow.exceptions import MlflowException

    try:
        return call()
    except (MlflowException, TrackingError) as error:
        cause = error if isinstance(error, MlflowException) else error.__cause__
        if isinstance(cause, MlflowException) and cause.error_code in AWAY:
            kind = WriteFailedError if _answers(client) else StoreAwayError
            raise kind(first_line(cause)[:200]) from error
        raise
    except OSError as error:
        if error.errno in FULL:  # of the disk that artifacts are written to
            raise WriteFailedError(error.strerror) from error
        raise
    except json.JSONDecodeError as error:
        raise WriteFailedError("its answer is no JSON") from error


def _answers(client: "MlflowClient") -> bool:
    """Whether the store answers anything at all."""
    from mlflow.exceptions import MlflowException

    try:
        client.search_experiments(max_results=1)
    except MlflowException:
        return False
    return True


def _now() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)
