"""Writes to runs as JSON entries, which the outbox stores and MLflow's client executes."""

import errno
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shunter.errors import TrackingError, first_line
from shunter.secrets import without_secrets
from shunter.tracking.outbox import Entry, StoreAwayError, WriteFailedError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

KEY = "run.key"  # tag with a unique key of a run, so that a repeated request creates only one run
AWAY = {"INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"}
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
Point = tuple[str, float, int, int]
"""Name of a metric, its value, milliseconds since 1970, and the step."""


def create_run(name: str, tags: Mapping[str, str]) -> Entry:
    """Return the entry that creates a run; the tag `run.key` identifies the run if the write is repeated."""
    own = {**tags, KEY: uuid.uuid4().hex}
    return {"call": "create_run", "name": without_secrets(name), "tags": own, "start_time": _now()}


def log_batch(
    run_id: str,
    points: Sequence[Point] = (),
    params: Mapping[str, str] = MappingProxyType({}),
    tags: Mapping[str, str] = MappingProxyType({}),
) -> Entry:
    """Return the entry that writes metrics, parameters and tags at once."""
    return {
        "call": "log_batch",
        "run_id": run_id,
        "metrics": [list(point) for point in points],
        "params": {name: without_secrets(text) for name, text in params.items()},
        "tags": {name: without_secrets(text) for name, text in tags.items()},
    }


def log_text(run_id: str, text: str, path: str) -> Entry:
    """Return the entry that writes a text as an artifact."""
    return {"call": "log_text", "run_id": run_id, "text": without_secrets(text), "path": path}


def log_artifact(run_id: str, file: str, folder: str | None) -> Entry:
    """Return the entry that writes a file as an artifact."""
    return {"call": "log_artifact", "run_id": run_id, "file": file, "folder": folder}


def log_inputs(run_id: str, datasets: Sequence["DatasetInput"]) -> Entry:
    """Return the entry that writes the input data sets of a run."""
    inputs = [{**dict(data.dataset), "tags": {tag.key: tag.value for tag in data.tags}} for data in datasets]
    return {"call": "log_inputs", "run_id": run_id, "inputs": inputs}


def set_terminated(run_id: str, status: str) -> Entry:
    """Return the entry that ends a run at the current time."""
    return {"call": "set_terminated", "run_id": run_id, "status": status, "end_time": _now()}


def hand_over(client: "MlflowClient", entry: Entry, experiment_id: Callable[[str], str], directory: Path) -> str | None:
    """Execute an entry with MLflow's client; return the store's id of a created run.

    Raises:
        StoreAwayError: The store does not answer. Other errors of the write are raised unchanged.
    """
    return call_store(client, lambda: _hand_over(client, entry, experiment_id, directory))


def _hand_over(
    client: "MlflowClient", entry: Entry, experiment_id: Callable[[str], str], directory: Path
) -> str | None:
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

    run_id = entry.get("run_id", "")
    match entry["call"]:
        case "create_run":
            return _create_once(client, entry, _experiment_of(client, entry["tags"], experiment_id))
        case "log_batch":
            metrics = [Metric(*point) for point in entry["metrics"]]
            params = [Param(key, text) for key, text in entry["params"].items()]
            tags = [RunTag(key, text) for key, text in entry["tags"].items()]
            client.log_batch(run_id, metrics=metrics, params=params, tags=tags)
        case "log_text":
            client.log_text(run_id, entry["text"], entry["path"])
        case "log_artifact":
            file = directory / entry["file"]  # an absolute path stays absolute
            client.log_artifact(run_id, str(file), entry["folder"])
        case "log_inputs":
            inputs = []
            for values in entry["inputs"]:
                dataset = Dataset(**{name: value for name, value in values.items() if name != "tags"})
                tags = [InputTag(key, text) for key, text in values["tags"].items()]
                inputs.append(DatasetInput(dataset, tags))
            client.log_inputs(run_id, inputs)
        case "set_terminated":
            client.set_terminated(run_id, entry["status"], entry["end_time"])
    return None


def _experiment_of(client: "MlflowClient", tags: Mapping[str, str], experiment_id: Callable[[str], str]) -> str:
    """Return the id of the experiment of a new run: the parent's experiment if the store has the parent run."""
    from mlflow.exceptions import MlflowException

    if parent := tags.get("mlflow.parentRunId"):
        try:
            return client.get_run(parent).info.experiment_id
        except MlflowException as error:
            if error.error_code in AWAY:
                raise
    return experiment_id(tags.get("run.kind", ""))


def _create_once(client: "MlflowClient", entry: Entry, experiment_id: str) -> str:
    """Create a run unless an earlier request, whose answer was lost, did so; delete duplicates of resent requests."""
    key = entry["tags"].get(KEY)  # None in entries of an earlier version

    def found() -> list[Any]:
        return list(client.search_runs([experiment_id], f"tags.`{KEY}` = '{key}'")) if key else []

    there = found() if "run_id" in entry else []  # a queued run may already exist
    if not there:
        there = [
            client.create_run(experiment_id, start_time=entry["start_time"], run_name=entry["name"], tags=entry["tags"])
        ]
        if str(client.tracking_uri).startswith("http"):  # HTTP requests without an answer are sent again
            there = found() or there
    first, *again = sorted(there, key=lambda run: run.info.run_id)
    for run in again:
        client.delete_run(run.info.run_id)
    return str(first.info.run_id)


def call_store(client: "MlflowClient", call: Callable[[], Any]) -> Any:
    """Call a function that writes to or reads from the store, and return its result.

    Raises:
        StoreAwayError: The store does not answer. Other errors of the call are raised unchanged.
        WriteFailedError: The store has an internal error, a full disk, or returns an invalid answer.
    """
    from mlflow.exceptions import MlflowException

    try:
        return call()
    except (MlflowException, TrackingError) as error:
        cause = error if isinstance(error, MlflowException) else error.__cause__
        if isinstance(cause, MlflowException) and cause.error_code in AWAY:
            kind = StoreAwayError
            with suppress(MlflowException):
                client.search_experiments(max_results=1)
                kind = WriteFailedError  # the store answers a simple query
            raise kind(first_line(cause)[:200]) from error
        raise
    except OSError as error:
        if error.errno in FULL:  # the disk of the artifacts is full
            raise WriteFailedError(error.strerror) from error
        raise
    except json.JSONDecodeError as error:
        raise WriteFailedError("the answer of the store is not JSON") from error


def _now() -> int:
    """Return the current time in milliseconds since 1970."""
    return int(time.time() * 1000)
