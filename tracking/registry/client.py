"""Client for writes to the model registry, which are not queued and fail if the store fails.

The writes of a registration are idempotent: a repeated write finds the existing object by a tag of the object.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from shunter.secrets import without_secrets
from shunter.tracking.outbox import StoreAwayError
from shunter.tracking.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

KEY = "registration.key"  # tag of a model and of a version: id of the registering run, and registered name


class RegistryClient:
    """Client for writes of models, versions and aliases; `without_secrets` removes secrets from texts.

    Attributes:
        mlflow: MLflow's client, for reading.
    """

    def __init__(self, mlflow: "MlflowClient") -> None:
        self.mlflow = mlflow

    def logged_model(self, run_id: str, name: str) -> "LoggedModel":
        """Return the logged model that a run registers under a name; create the model if missing, delete duplicates."""
        own = key_of(run_id, name)
        experiment = self.mlflow.get_run(run_id).info.experiment_id

        def found() -> "list[LoggedModel]":
            there = self.mlflow.search_logged_models([experiment], f"source_run_id = '{run_id}'")
            own_models = (model for model in there if model.tags.get(KEY) == own)
            return sorted(own_models, key=lambda one: (one.status != "READY", one.creation_timestamp, one.model_id))

        if not found():
            self.mlflow.create_logged_model(
                experiment, name="model", source_run_id=run_id, model_type="recommender", tags={KEY: own}
            )
        first, *again = found()
        for model in again:
            _gone(partial(self.mlflow.delete_logged_model, model.model_id))
        return first

    def upload(self, model_id: str, file: "Path", folder: str | None) -> None:
        """Upload a file of a model, and verify its size in the store, since a server's answer is not reliable.

        Args:
            model_id: Id of the model.
            file: File on this machine.
            folder: Target folder within the model; None for its root.

        Raises:
            StoreAwayError: The file is missing in the store or has another size.
        """
        self.mlflow.log_model_artifact(model_id, str(file), folder)
        path = f"{folder}/{file.name}" if folder else file.name
        there = {found.path: found.file_size for found in self.mlflow.list_logged_model_artifacts(model_id, folder)}
        if there.get(path) != file.stat().st_size:
            raise StoreAwayError(f"{path} did not arrive")

    def log_model_metrics(self, model: "LoggedModel", run_id: str, metrics: Mapping[str, float]) -> None:
        """Write metrics of a model; a second call changes nothing."""
        from mlflow.entities import Metric

        points = [
            Metric(name, value, model.creation_timestamp, 0, model_id=model.model_id, run_id=run_id)
            for name, value in metrics.items()
        ]
        self.mlflow.log_batch(run_id, metrics=points)

    def ensure_registered_model(self, name: str, description: str) -> None:
        """Create a registered model unless the name exists."""
        from mlflow.exceptions import MlflowException

        try:
            self.mlflow.create_registered_model(name, description=without_secrets(description))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def version_of_run(self, name: str, run_id: str) -> int | None:
        """Return the version that a run registered under a name; None if the run registered no version.

        Duplicate versions, made by the store after a lost answer or a repeated request, are deleted.
        """
        found = [
            version for version in self.mlflow.search_model_versions(f"run_id = '{run_id}'") if version.name == name
        ]
        own = key_of(run_id, name)
        first, *again = sorted(int(version.version) for version in found if version.tags.get(KEY) == own) or [None]
        for number in again:
            _gone(partial(self.mlflow.delete_model_version, name, str(number)))
        others = (int(version.version) for version in found if version.tags.get(KEY) != own)  # without the tag
        return max(others, default=None) if first is None else first

    def create_version(self, name: str, model: "LoggedModel", run_id: str, tags: Mapping[str, str]) -> int:
        """Create a version from a logged model unless it exists; return the version number."""
        there = self.version_of_run(name, run_id)
        if there is None:
            own_tags = {**{key: without_secrets(text) for key, text in tags.items()}, KEY: key_of(run_id, name)}
            created = self.mlflow.create_model_version(
                name, source=model.artifact_location, run_id=run_id, tags=own_tags, model_id=model.model_id
            )
            there = self.version_of_run(name, run_id) or int(created.version)
        return there

    def describe_version(self, name: str, version: int, text: str) -> None:
        """Set the description of a version."""
        self.mlflow.update_model_version(name, str(version), without_secrets(text))

    def set_version_tag(self, name: str, version: int, key: str, text: str) -> None:
        """Write a tag of a version."""
        self.mlflow.set_model_version_tag(name, str(version), key, without_secrets(text))

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Set an alias of the registered model to a version."""
        self.mlflow.set_registered_model_alias(name, alias, str(version))


def key_of(run_id: str, name: str) -> str:
    """Return the value of the tag `KEY` for a run and a registered name."""
    return f"{run_id}/{name}"


def _gone(delete: Callable[[], None]) -> None:
    """Call `delete`; ignore the error that the object does not exist any more."""
    from mlflow.exceptions import MlflowException

    try:
        delete()
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


def open_registry() -> RegistryClient:
    """Return a client of the registry, which is in the same store as the runs.

    Raises:
        TrackingError: The store cannot be reached or created.
    """
    return RegistryClient(open_store().mlflow)
