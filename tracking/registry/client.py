"""The writes to the registry that there are: they go to the store at once, and fail with it.

Those of a registration may be made again, whatever became of them before: what is made once has a tag to know it by.
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

KEY = "registration.key"  # tag of a model and of a version: the run that registers, and the name


class RegistryClient:
    """Writes of models, versions and their aliases; texts pass through `without_secrets`.

    Args:
        mlflow: MLflow's client.

    Attributes:
        mlflow: The same, for reading.
    """

    def __init__(self, mlflow: "MlflowClient") -> None:
        self.mlflow = mlflow

    def logged_model(self, run_id: str, name: str) -> "LoggedModel":
        """The model that a run began to register under a name, or a new one; one that was begun twice is there once.

        Args:
            run_id: Id of the run that the model came out of.
            name: Name of the registered model.
        """
        own = key_of(run_id, name)
        experiment = self.mlflow.get_run(run_id).info.experiment_id

        def found() -> "list[LoggedModel]":
            there = self.mlflow.search_logged_models([experiment], f"source_run_id = '{run_id}'")
            return sorted((model for model in there if model.tags.get(KEY) == own), key=_by_readiness)

        if not found():
            self.mlflow.create_logged_model(
                experiment, name="model", source_run_id=run_id, model_type="recommender", tags={KEY: own}
            )
        first, *again = found()
        for model in again:
            _gone(partial(self.mlflow.delete_logged_model, model.model_id))
        return first

    def upload(self, model_id: str, file: "Path", folder: str | None) -> None:
        """Give a model one of its files, and look whether it arrived: a server's word for it may be another's.

        Args:
            model_id: Id of the model.
            file: File on this machine.
            folder: Folder of the model that it goes into; None for its root.

        Raises:
            StoreAwayError: It did not arrive.
        """
        self.mlflow.log_model_artifact(model_id, str(file), folder)
        path = f"{folder}/{file.name}" if folder else file.name
        there = {found.path: found.file_size for found in self.mlflow.list_logged_model_artifacts(model_id, folder)}
        if there.get(path) != file.stat().st_size:
            raise StoreAwayError(f"{path} did not arrive")

    def log_model_metrics(self, model: "LoggedModel", run_id: str, metrics: Mapping[str, float]) -> None:
        """Write figures of a model; a second call changes nothing.

        Args:
            model: The model.
            run_id: Id of the run that the model came out of.
            metrics: Figures of the model, under the names of the convention.
        """
        from mlflow.entities import Metric

        points = [
            Metric(name, value, model.creation_timestamp, 0, model_id=model.model_id, run_id=run_id)
            for name, value in metrics.items()
        ]
        self.mlflow.log_batch(run_id, metrics=points)

    def finish_logged_model(self, model_id: str) -> "LoggedModel":
        """Declare a model ready."""
        return self.mlflow.finalize_logged_model(model_id, "READY")

    def ensure_registered_model(self, name: str, description: str) -> None:
        """Make a registered model, unless there is one of that name."""
        from mlflow.exceptions import MlflowException

        try:
            self.mlflow.create_registered_model(name, description=without_secrets(description))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def version_of_run(self, name: str, run_id: str) -> int | None:
        """The version that a run registered under a name; None where it registered none.

        One that the store has made twice, because its answer was lost or a request reached it twice, is there once.
        """
        found = [
            version for version in self.mlflow.search_model_versions(f"run_id = '{run_id}'") if version.name == name
        ]
        own = key_of(run_id, name)
        first, *again = sorted(int(version.version) for version in found if version.tags.get(KEY) == own) or [None]
        for number in again:
            _gone(partial(self.mlflow.delete_model_version, name, str(number)))
        others = (int(version.version) for version in found if version.tags.get(KEY) != own)  # of former versions
        return max(others, default=None) if first is None else first

    def create_version(self, name: str, model: "LoggedModel", run_id: str, tags: Mapping[str, str]) -> int:
        """Make a logged model a version of a registered one, unless it is; its number."""
        there = self.version_of_run(name, run_id)
        if there is None:
            own_tags = {**{key: without_secrets(text) for key, text in tags.items()}, KEY: key_of(run_id, name)}
            created = self.mlflow.create_model_version(
                name, source=model.artifact_location, run_id=run_id, tags=own_tags, model_id=model.model_id
            )
            there = self.version_of_run(name, run_id) or int(created.version)
        return there

    def describe_version(self, name: str, version: int, text: str) -> None:
        """Let the registry's page of a version show a text."""
        self.mlflow.update_model_version(name, str(version), without_secrets(text))

    def set_version_tag(self, name: str, version: int, key: str, text: str) -> None:
        """Write a tag of a version."""
        self.mlflow.set_model_version_tag(name, str(version), key, without_secrets(text))

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Put an alias on a version."""
        self.mlflow.set_registered_model_alias(name, alias, str(version))

    def delete_alias(self, name: str, alias: str) -> None:
        """Take an alias away."""
        self.mlflow.delete_registered_model_alias(name, alias)


def key_of(run_id: str, name: str) -> str:
    """What a run registers under a name, by which it is found again."""
    return f"{run_id}/{name}"


def _gone(delete: Callable[[], None]) -> None:
    """Delete something, unless the same request did it a moment ago."""
    from mlflow.exceptions import MlflowException

    try:
        delete()
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


def _by_readiness(model: "LoggedModel") -> tuple[bool, int, str]:
    return model.status != "READY", model.creation_timestamp, model.model_id


def open_registry() -> RegistryClient:
    """Client of the registry, which lies in the store of the runs.

    Raises:
        TrackingError: The store cannot be reached or created.
    """
    return RegistryClient(open_store().mlflow)
