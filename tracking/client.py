"""The client of the tracking store: hides secrets in what it writes, and keeps it while the store is away."""

import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from shunter.errors import TrackingError
from shunter.secrets import without_secrets
from tracking.outbox import LOCAL, Delivery, Entry, Outbox, StoreAwayError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Metric, Param, RunTag

AWAY = {"INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"}
# MLflow would try each call for four minutes, and wait two for an answer.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


class TrackingClient:
    """An `MlflowClient` whose writes to runs survive an outage: they wait in the outbox, in their order.

    Reads, and what belongs to the registry, go to the store at once, and fail with it.

    Args:
        uri: address of the store.
    """

    def __init__(self, uri: str) -> None:
        if uri.startswith(("http:", "https:")):
            for name, value in PATIENCE.items():
                os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        self._client: MlflowClient = MlflowClient(uri)
        self._outbox = Outbox(uri)

    def __getattr__(self, name: str) -> Any:
        """Everything else as MLflow has it, with the store's ids of runs that were opened while it was away."""
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*values: Any, **named: Any) -> Any:
            known = self._outbox.real_id
            return found(
                *(known(value) if isinstance(value, str) else value for value in values),
                **{key: known(value) if isinstance(value, str) else value for key, value in named.items()},
            )

        return call

    def open_run(self, experiment: Any, name: str, tags: Mapping[str, str]) -> str:
        """Open a run; while the store is away, one with an id of our own.

        Args:
            experiment: gives the id of the experiment, given MLflow's client.
            name: of the run.
            tags: of the run.
        """
        now = int(time.time() * 1000)
        entry: Entry = {"call": "create_run", "name": without_secrets(name), "tags": dict(tags), "start_time": now}
        if self._outbox.is_empty:
            try:
                return str(self._direct(experiment, entry))
            except StoreAwayError as error:
                self._say(error)
        entry["run_id"] = f"{LOCAL}{uuid.uuid4().hex}"
        self._outbox.append(entry)
        self._try_again(experiment)
        return self._outbox.real_id(str(entry["run_id"]))

    def log_batch(
        self,
        run_id: str,
        metrics: Sequence["Metric"] = (),
        params: Sequence["Param"] = (),
        tags: Sequence["RunTag"] = (),
    ) -> None:
        """As MLflow's."""
        self._write(
            {
                "call": "log_batch",
                "run_id": run_id,
                "metrics": [[one.key, one.value, one.timestamp, one.step] for one in metrics],
                "params": {one.key: without_secrets(one.value) for one in params},
                "tags": {one.key: without_secrets(one.value) for one in tags},
            }
        )

    def log_text(self, run_id: str, text: str, artifact_file: str) -> None:
        """As MLflow's."""
        self._write({"call": "log_text", "run_id": run_id, "text": without_secrets(text), "path": artifact_file})

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str | None = None) -> None:
        """As MLflow's."""
        self._write({"call": "log_artifact", "run_id": run_id, "file": local_path, "folder": artifact_path})

    def log_figure(self, run_id: str, figure: Any, artifact_file: str) -> None:
        """As MLflow's, for figures of matplotlib."""
        inside = Path(artifact_file)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / inside.name
            figure.savefig(path)
            self.log_artifact(run_id, str(path), str(inside.parent) if len(inside.parts) > 1 else None)

    def log_table(self, run_id: str, data: Mapping[str, Sequence[Any]], artifact_file: str) -> None:
        """As MLflow's; what waits is written as the file that MLflow would make of it."""
        if self._outbox.is_empty:
            try:
                real = self._outbox.real_id(run_id)
                _store_errors(self._client, lambda: self._client.log_table(real, dict(data), artifact_file))
                return
            except StoreAwayError as error:
                self._say(error)
        rows = [list(row) for row in zip(*data.values(), strict=True)]
        self.log_text(run_id, json.dumps({"columns": list(data), "data": rows}), artifact_file)

    def log_inputs(self, run_id: str, datasets: Sequence["DatasetInput"]) -> None:
        """As MLflow's."""
        inputs = [{**dict(one.dataset), "tags": {tag.key: tag.value for tag in one.tags}} for one in datasets]
        self._write({"call": "log_inputs", "run_id": run_id, "inputs": inputs})

    def set_terminated(self, run_id: str, status: str) -> None:
        """As MLflow's."""
        ended = int(time.time() * 1000)
        self._write({"call": "set_terminated", "run_id": run_id, "status": status, "end_time": ended})

    def list_artifacts(self, run_id: str, path: str | None = None) -> list[Any]:
        """As MLflow's; none while the store is away."""
        real = self._outbox.real_id(run_id)
        if real.startswith(LOCAL):
            return []
        try:
            return _store_errors(self._client, lambda: self._client.list_artifacts(real, path))
        except StoreAwayError:
            return []

    def deliver(self, experiment: Any) -> Delivery:
        """Hand over what waits."""
        return self._outbox.deliver(lambda entry: self._call(experiment, entry))

    def waiting(self) -> int:
        """How many writes wait."""
        return self._outbox.waiting()

    def _write(self, entry: Entry) -> None:
        if self._outbox.is_empty:
            try:
                self._direct(None, entry)
                return
            except StoreAwayError as error:
                self._say(error)
        if "file" in entry:  # it may be gone by then
            entry = {**entry, "file": self._outbox.keep_file(Path(entry["file"]))}
        self._outbox.append(entry)
        self._try_again(None)

    def _direct(self, experiment: Any, entry: Entry) -> str | None:
        return self._call(experiment, self._outbox.known(entry))

    def _call(self, experiment: Any, entry: Entry) -> str | None:
        return _store_errors(self._client, lambda: _call(self._client, self._outbox.directory, experiment, entry))

    def _try_again(self, experiment: Any) -> None:
        from tracking.store import experiment_id

        if self._outbox.is_due():
            self.deliver(experiment or experiment_id)

    def _say(self, error: StoreAwayError) -> None:
        Console(stderr=True).print(
            f"The tracking store {self._outbox.store} is away ({without_secrets(str(error))}): what it shall get is "
            f"kept in {self._outbox.directory} and delivered when it is back.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _call(client: "MlflowClient", directory: Path, experiment: Any, entry: Entry) -> str | None:
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

    run_id = entry.get("run_id", "")
    match entry["call"]:
        case "create_run":
            run = client.create_run(
                experiment(client), start_time=entry["start_time"], run_name=entry["name"], tags=entry["tags"]
            )
            return run.info.run_id
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
            inputs = [
                DatasetInput(
                    Dataset(**{key: value for key, value in one.items() if key != "tags"}),
                    [InputTag(key, text) for key, text in one["tags"].items()],
                )
                for one in entry["inputs"]
            ]
            client.log_inputs(run_id, inputs)
        case "set_terminated":
            client.set_terminated(run_id, entry["status"], entry["end_time"])
    return None


def _store_errors(client: "MlflowClient", call: Callable[[], Any]) -> Any:
    """What `call` gives.

    Raises:
        StoreAwayError: the store does not answer; what it says about the call itself passes.
    """
    from mlflow.exceptions import MlflowException

    try:
        return call()
    except (MlflowException, TrackingError) as error:
        cause = error if isinstance(error, MlflowException) else error.__cause__
        if isinstance(cause, MlflowException) and cause.error_code in AWAY and not _answers(client):
            raise StoreAwayError(_first_line(cause)) from error
        raise


def _answers(client: "MlflowClient") -> bool:
    """Whether the store answers anything at all."""
    from mlflow.exceptions import MlflowException

    try:
        client.search_experiments(max_results=1)
    except MlflowException:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200].rstrip(".")
