"""Client of the tracking store, which queues writes to runs while the store is unreachable.

`without_secrets` removes secrets from every written text. Reads go to the store directly, through `mlflow`. Writes to
the model registry are in `shunter.tracking.registry.client`.
"""

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.masked_console import Console
from shunter.secrets import without_secrets
from shunter.tracking import entries
from shunter.tracking.entries import Point, call_store, hand_over
from shunter.tracking.loggers import OPEN_LOGGERS
from shunter.tracking.outbox import LOCAL, Delivery, Entry, Outbox, StoreAwayError, WriteFailedError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, FileInfo

# By default MLflow retries each call for four minutes and waits two minutes for an answer.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


class TrackingClient:
    """Client for writes to runs that survive an outage of the store: an outbox queues the writes in order.

    Attributes:
        mlflow: MLflow's own client, for reading; takes the run ids that `real_id` returns.
    """

    def __init__(self, uri: str, experiment_id: "Callable[[MlflowClient, str], str]") -> None:
        if uri.startswith(("http:", "https:")):
            for name, value in PATIENCE.items():
                os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        self.mlflow = MlflowClient(uri)
        self._experiment_id = experiment_id
        self._outbox = Outbox(uri)

    def real_id(self, run_id: str) -> str:
        """Return the store's id of a run created during an outage, if it is delivered; otherwise return `run_id`."""
        return self._outbox.real_id(run_id)

    def create_run(self, name: str, tags: Mapping[str, str]) -> str:
        """Create a run and return its id; while the store is unreachable, return a local id beginning with `LOCAL`."""
        entry = entries.create_run(name, tags)
        run_id = None
        if self._outbox.is_empty:
            try:
                run_id = str(self._direct(entry))
            except StoreAwayError as error:
                self._report(error)
        if run_id is None:
            entry["run_id"] = f"{LOCAL}{uuid.uuid4().hex}"
            self._outbox.append(entry)
            self._try_again()
            run_id = self.real_id(str(entry["run_id"]))
        OPEN_LOGGERS.begin_child(run_id, name, tags)
        return run_id

    def log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Write parameters of a run."""
        self._write(entries.log_batch(run_id, params=params))
        OPEN_LOGGERS.call(run_id, "log_params", params)

    def log_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        """Write points of metrics, at most 1,000 per call (MLflow's limit)."""
        self._write(entries.log_batch(run_id, points))
        OPEN_LOGGERS.call(run_id, "log_metrics", points)

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Write tags of a run; existing tags are replaced."""
        self._write(entries.log_batch(run_id, tags=tags))

    def delete_tag(self, run_id: str, name: str) -> None:
        """Remove a tag; the write is not queued and fails while the store is unreachable."""
        self.mlflow.delete_tag(self.real_id(run_id), name)

    def log_text(self, run_id: str, text: str, artifact_file: str) -> None:
        """Write a text as an artifact; an existing artifact is replaced."""
        self._write(entries.log_text(run_id, text, artifact_file))

    def log_artifact(self, run_id: str, local_path: str | Path, folder: str | None = None) -> None:
        """Write a file as an artifact, in a folder of the run or at its root."""
        self._write(entries.log_artifact(run_id, str(local_path), folder))

    def log_table(self, run_id: str, data: Mapping[str, Sequence[Any]], artifact_file: str) -> None:
        """Write a table artifact; while the store is unreachable, queue the file that MLflow would write."""
        if self._outbox.is_empty:
            try:
                real = self.real_id(run_id)
                call_store(self.mlflow, lambda: self.mlflow.log_table(real, dict(data), artifact_file))
                return
            except StoreAwayError as error:
                self._report(error)
        rows = [list(row) for row in zip(*data.values(), strict=True)]
        self.log_text(run_id, json.dumps({"columns": list(data), "data": rows}), artifact_file)

    def log_inputs(self, run_id: str, datasets: Sequence["DatasetInput"]) -> None:
        """Write the input data sets of a run."""
        self._write(entries.log_inputs(run_id, datasets))

    def set_terminated(self, run_id: str, status: str) -> None:
        """Close a run."""
        self._write(entries.set_terminated(run_id, status))
        OPEN_LOGGERS.end(run_id)

    def list_artifacts(self, run_id: str, folder: str | None = None) -> "list[FileInfo]":
        """Return the artifacts in a folder of a run, or at its root; empty while the store is unreachable."""
        real = self.real_id(run_id)
        if real.startswith(LOCAL):
            return []
        try:
            return call_store(self.mlflow, lambda: self.mlflow.list_artifacts(real, folder))
        except StoreAwayError:
            return []

    def deliver(self) -> Delivery:
        """Deliver the queued writes to the store."""
        return self._outbox.deliver(self._hand_over)

    def _write(self, entry: Entry) -> None:
        if self._outbox.is_empty:
            try:
                self._direct(entry)
                return
            except StoreAwayError as error:
                self._report(error)
        if "file" in entry:  # the original may be deleted before delivery
            entry = {**entry, "file": self._outbox.keep_file(Path(entry["file"]))}
        self._outbox.append(entry)
        self._try_again()

    def _direct(self, entry: Entry) -> str | None:
        return self._hand_over(self._outbox.with_store_ids(entry))

    def _hand_over(self, entry: Entry) -> str | None:
        return hand_over(self.mlflow, entry, partial(self._experiment_id, self.mlflow), self._outbox.directory)

    def _try_again(self) -> None:
        if self._outbox.is_due() and (refused := self.deliver().refused):
            self._say(
                f"The tracking store {self._outbox.store} did not take {refused} of the entries that waited for it: "
                f"they are in {self._outbox.directory / 'refused.jsonl'}, with the reasons."
            )

    def _report(self, error: StoreAwayError) -> None:
        what = "failed to take an entry" if isinstance(error, WriteFailedError) else "is away"
        self._say(
            f"The tracking store {self._outbox.store} {what} ({without_secrets(str(error))}): what it shall get is "
            f"kept in {self._outbox.directory} and delivered when it is back."
        )

    def _say(self, sentence: str) -> None:
        Console(stderr=True).print(sentence, markup=False, highlight=False, soft_wrap=True)
